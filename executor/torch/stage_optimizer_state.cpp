// What an optimizer stores, told by name and put back.
#include <memory>
#include <utility>

#include "executor/torch/stage_optimizer.h"

namespace xpipe::executor::nn {

namespace {

namespace optim = torch::optim;

void put(NamedTensors& into, const char* name, const torch::Tensor& tensor) {
  if (tensor.defined()) {
    into[name] = tensor;
  }
}

/// A copy of the tensor of that name; undefined without one.
torch::Tensor take(const NamedTensors& from, const char* name) {
  const auto found = from.find(name);
  return found == from.end() ? torch::Tensor() : found->second.clone();
}

std::int64_t take_step(const NamedTensors& from) {
  const auto found = from.find("step");
  return found == from.end() ? 0 : found->second.item<std::int64_t>();
}

template <typename State>
void put_moments(NamedTensors& into, const optim::OptimizerParamState& state) {
  const auto& moments = static_cast<const State&>(state);
  into["step"] = torch::tensor(moments.step(), torch::kInt64);
  put(into, "exp_avg", moments.exp_avg());
  put(into, "exp_avg_sq", moments.exp_avg_sq());
}

template <typename State>
std::unique_ptr<optim::OptimizerParamState> take_moments(const NamedTensors& from) {
  auto state = std::make_unique<State>();
  state->step(take_step(from));
  state->exp_avg(take(from, "exp_avg"));
  state->exp_avg_sq(take(from, "exp_avg_sq"));
  return state;
}

}  // namespace

const char* StageOptimizer::history_name() const {
  if (needs_last_gradient()) {
    return "last_gradient";
  }
  return needs_moving_average() ? "moving_average" : nullptr;
}

NamedTensors StageOptimizer::parameter_state(std::size_t parameter) const {
  NamedTensors tensors;
  if (const char* name = history_name()) {
    put(tensors, name, history_[parameter]);
  }
  const optim::OptimizerParamState* state = state_of(parameter);
  if (state == nullptr) {
    return tensors;
  }
  switch (config_.kind) {
    case OptimizerKind::Sgd:
      put(tensors, "momentum_buffer",
          static_cast<const optim::SGDParamState&>(*state).momentum_buffer());
      break;
    case OptimizerKind::Adam:
      put_moments<optim::AdamParamState>(tensors, *state);
      break;
    case OptimizerKind::AdamW:
      put_moments<optim::AdamWParamState>(tensors, *state);
      break;
    case OptimizerKind::RmsProp: {
      const auto& known = static_cast<const optim::RMSpropParamState&>(*state);
      tensors["step"] = torch::tensor(known.step(), torch::kInt64);
      put(tensors, "square_avg", known.square_avg());
      put(tensors, "momentum_buffer", known.momentum_buffer());
      break;
    }
  }
  return tensors;
}

void StageOptimizer::set_parameter_state(std::size_t parameter, const NamedTensors& stored) {
  NamedTensors tensors;
  for (const auto& [key, tensor] : stored) {
    tensors[key] = key == "step" ? tensor : tensor.to(masters_[parameter].device());
  }
  const char* name = history_name();
  history_[parameter] = name == nullptr ? torch::Tensor() : take(tensors, name);
  std::unique_ptr<optim::OptimizerParamState> state;
  switch (config_.kind) {
    case OptimizerKind::Sgd:
      if (tensors.contains("momentum_buffer")) {
        auto known = std::make_unique<optim::SGDParamState>();
        known->momentum_buffer(take(tensors, "momentum_buffer"));
        state = std::move(known);
      }
      break;
    case OptimizerKind::Adam:
      if (tensors.contains("exp_avg")) {
        state = take_moments<optim::AdamParamState>(tensors);
      }
      break;
    case OptimizerKind::AdamW:
      if (tensors.contains("exp_avg")) {
        state = take_moments<optim::AdamWParamState>(tensors);
      }
      break;
    case OptimizerKind::RmsProp:
      if (tensors.contains("square_avg")) {
        auto known = std::make_unique<optim::RMSpropParamState>();
        known->step(take_step(tensors));
        known->square_avg(take(tensors, "square_avg"));
        known->momentum_buffer(take(tensors, "momentum_buffer"));
        state = std::move(known);
      }
      break;
  }
  void* const key = leaves_[parameter].unsafeGetTensorImpl();
  if (state) {
    optimizer_->state()[key] = std::move(state);
  } else {
    optimizer_->state().erase(key);
  }
}

std::vector<torch::Tensor> StageOptimizer::state() const {
  std::vector<torch::Tensor> tensors;
  for (std::size_t p = 0; p < masters_.size(); ++p) {
    for (const auto& [name, tensor] : parameter_state(p)) {
      if (name != "step") {
        tensors.push_back(tensor);
      }
    }
  }
  return tensors;
}

ir::Bytes StageOptimizer::state_bytes() const {
  ir::Bytes bytes = 0;
  for (const torch::Tensor& tensor : state()) {
    bytes += static_cast<ir::Bytes>(tensor.nbytes());
  }
  return bytes;
}

}  // namespace xpipe::executor::nn
