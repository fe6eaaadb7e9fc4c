#include "executor/torch/stage_optimizer.h"

#include <array>
#include <cmath>
#include <utility>

#include "executor/torch/fused_prediction.h"

namespace xpipe::executor::nn {

namespace {

/// Decay that is part of the gradient is added by step(), in place; the same arithmetic as
/// LibTorch's, which would allocate for it, and the gradient is then the one history keeps.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerConfig& config,
                                                        std::vector<torch::Tensor> leaves) {
  namespace optim = torch::optim;
  switch (config.kind) {
    case OptimizerKind::Sgd:
      return std::make_unique<optim::SGD>(
          std::move(leaves), optim::SGDOptions(config.learning_rate).momentum(config.momentum));
    case OptimizerKind::Adam:
      return std::make_unique<optim::Adam>(std::move(leaves),
                                           optim::AdamOptions(config.learning_rate)
                                               .betas({config.beta1, config.beta2})
                                               .eps(config.eps));
    case OptimizerKind::AdamW:
      return std::make_unique<optim::AdamW>(std::move(leaves),
                                            optim::AdamWOptions(config.learning_rate)
                                                .betas({config.beta1, config.beta2})
                                                .eps(config.eps)
                                                .weight_decay(config.weight_decay));
    case OptimizerKind::RmsProp:
      return std::make_unique<optim::RMSprop>(std::move(leaves),
                                              optim::RMSpropOptions(config.learning_rate)
                                                  .alpha(config.alpha)
                                                  .eps(config.eps)
                                                  .momentum(config.momentum));
  }
  return nullptr;
}

struct Moments {
  torch::Tensor first;
  torch::Tensor second;
  std::int64_t steps = 0;
};

template <typename State>
Moments moments_of(const torch::optim::OptimizerParamState& state) {
  const auto& moments = static_cast<const State&>(state);
  return {moments.exp_avg(), moments.exp_avg_sq(), moments.step()};
}

}  // namespace

StageOptimizer::StageOptimizer(const OptimizerConfig& config,
                               const PredictionForm& form,
                               bool predicts,
                               std::vector<torch::Tensor> masters,
                               PredictionKernel kernel)
    : config_(config),
      form_(form),
      predicts_(predicts),
      kernel_(kernel ? std::move(kernel) : cpu_prediction_kernel()),
      masters_(std::move(masters)),
      history_(masters_.size()) {
  for (const torch::Tensor& master : masters_) {
    leaves_.push_back(master.detach().requires_grad_(true));
  }
  if (!leaves_.empty()) {  // LibTorch has no optimizer of nothing
    optimizer_ = make_optimizer(config_, leaves_);
  }
}

StageOptimizer::~StageOptimizer() = default;

bool StageOptimizer::needs_moving_average() const {
  return predicts_ && form_.extrapolation == Extrapolation::SmoothedGradient &&
         !(config_.kind == OptimizerKind::Sgd && config_.momentum != 0.0);
}

bool StageOptimizer::needs_last_gradient() const {
  return predicts_ && form_.extrapolation == Extrapolation::OptimizerStep &&
         (config_.kind == OptimizerKind::Sgd || config_.kind == OptimizerKind::RmsProp) &&
         config_.momentum == 0.0;
}

void StageOptimizer::remember(std::size_t parameter, const torch::Tensor& gradient) {
  if (needs_last_gradient()) {
    history_[parameter] = gradient.contiguous();
  } else if (needs_moving_average()) {
    torch::Tensor& average = history_[parameter];
    if (!average.defined()) {
      average = torch::zeros_like(gradient);
    }
    average.mul_(form_.gamma).add_(gradient, 1.0 - form_.gamma);
  }
}

void StageOptimizer::step(std::vector<torch::Tensor> gradients) {
  const torch::NoGradGuard no_grad;
  for (std::size_t p = 0; p < leaves_.size(); ++p) {
    torch::Tensor& gradient = gradients[p];
    if (gradient.defined()) {
      if (config_.weight_decay != 0.0 && config_.kind != OptimizerKind::AdamW) {
        gradient.add_(masters_[p], config_.weight_decay);
      }
      remember(p, gradient);
    }
    leaves_[p].mutable_grad() = std::move(gradient);
  }
  if (optimizer_) {
    optimizer_->param_groups()[0].options().set_lr(
        learning_rate_at(config_.learning_rate, config_.schedule, steps_));
    optimizer_->step();
  }
  for (torch::Tensor& leaf : leaves_) {
    leaf.mutable_grad().reset();
  }
  ++steps_;
}

double StageOptimizer::learning_rate_ahead(ir::Distance distance) const {
  return learning_rate_sum(config_.learning_rate, config_.schedule, steps_, distance);
}

torch::optim::OptimizerParamState* StageOptimizer::state_of(std::size_t parameter) const {
  const auto& states = optimizer_->state();
  const auto found = states.find(leaves_[parameter].unsafeGetTensorImpl());
  return found == states.end() ? nullptr : found->second.get();
}

bool StageOptimizer::has_history(std::size_t parameter) const {
  if (needs_moving_average() || needs_last_gradient()) {
    return history_[parameter].defined();
  }
  return state_of(parameter) != nullptr;
}

void StageOptimizer::aim_adam(std::size_t p, PredictedTensor& tensor) const {
  const bool decoupled = config_.kind == OptimizerKind::AdamW;
  const torch::optim::OptimizerParamState& state = *state_of(p);
  const Moments moments = decoupled ? moments_of<torch::optim::AdamWParamState>(state)
                                    : moments_of<torch::optim::AdamParamState>(state);
  const double exponent =
      form_.bias == BiasCorrection::Literal ? 1.0 : static_cast<double>(moments.steps);
  const double first = 1.0 - std::pow(config_.beta1, exponent);
  const double root_second = std::sqrt(1.0 - std::pow(config_.beta2, exponent));
  // (m / first) / (sqrt(v) / root_second + eps), multiplied through by root_second.
  tensor.step = PredictionStep::Normalized;
  tensor.direction = memory_of(moments.first);
  tensor.squares = memory_of(moments.second);
  tensor.epsilon = config_.eps * root_second;
  tensor.decay = decoupled ? tensor.rate * config_.weight_decay : 0.0;
  tensor.rate *= root_second / first;
}

void StageOptimizer::aim_rmsprop(std::size_t p, PredictedTensor& tensor) const {
  const auto& state = static_cast<const torch::optim::RMSpropParamState&>(*state_of(p));
  if (config_.momentum != 0.0) {
    tensor.direction = memory_of(state.momentum_buffer());
    return;
  }
  tensor.step = PredictionStep::Normalized;
  tensor.direction = memory_of(history_[p]);
  tensor.squares = memory_of(state.square_avg());
  tensor.epsilon = config_.eps;
}

void StageOptimizer::aim_sgd(std::size_t p, PredictedTensor& tensor) const {
  const torch::Tensor& direction =
      config_.momentum == 0.0
          ? history_[p]
          : static_cast<const torch::optim::SGDParamState&>(*state_of(p)).momentum_buffer();
  tensor.direction = memory_of(direction);
}

PredictedTensor StageOptimizer::aimed(std::size_t p,
                                      ir::Distance distance,
                                      torch::Tensor into) const {
  PredictedTensor tensor{.weights = memory_of(masters_[p]),
                         .into = into.mutable_data_ptr(),
                         .count = masters_[p].numel()};
  if (distance == 0 || !has_history(p)) {
    return tensor;
  }
  tensor.step = PredictionStep::Linear;
  tensor.rate = learning_rate_ahead(distance);
  if (needs_moving_average()) {
    tensor.direction = memory_of(history_[p]);
    return tensor;
  }
  switch (config_.kind) {
    case OptimizerKind::Sgd:
      aim_sgd(p, tensor);
      break;
    case OptimizerKind::Adam:
    case OptimizerKind::AdamW:
      aim_adam(p, tensor);
      break;
    case OptimizerKind::RmsProp:
      aim_rmsprop(p, tensor);
      break;
  }
  return tensor;
}

void StageOptimizer::predict(ir::Distance distance, const std::vector<torch::Tensor>& into) const {
  // One list for each type that a slot has: weights of batch norms keep float32 beside bf16.
  std::array<std::vector<PredictedTensor>, 4> by_type;
  for (std::size_t p = 0; p < masters_.size(); ++p) {
    std::vector<PredictedTensor>& list =
        by_type[static_cast<std::size_t>(number_of(into[p].scalar_type()))];
    list.push_back(aimed(p, distance, into[p]));
  }
  for (std::size_t type = 0; type < by_type.size(); ++type) {
    if (!by_type[type].empty()) {
      kernel_(by_type[type], {.weights = number_of(masters_.front().scalar_type()),
                              .slot = static_cast<Number>(type)});
    }
  }
}

}  // namespace xpipe::executor::nn
