// What a stage's other tasks do with its weights and gradients; its passes are in stage.cpp.
#include <string>
#include <utility>

#include "executor/torch/stage.h"

namespace xpipe::executor::nn {

namespace {

using ir::index_of;

ir::Error out_of_order(std::string what) {
  return ir::make_error(ir::ErrorKind::Internal, "wrong-order", "", std::move(what));
}

}  // namespace

ir::Status Stage::predict(const ir::Predict& task) {
  if (ir::Status status = check({.version = task.version, .slot = task.from}); !status.ok()) {
    return status;
  }
  if (task.from != ir::kMasterSlot || task.into == ir::kMasterSlot) {
    return out_of_order("predictions go from slot 0 into another one");
  }
  optimizer_->predict(task.distance, weights_->slot(task.into));
  held_.at(index_of(task.into)) = {.version = task.version, .distance = task.distance};
  return {};
}

ir::Status Stage::stash(const ir::Stash& task) {
  if (ir::Status status = check({.version = task.version, .slot = task.from}); !status.ok()) {
    return status;
  }
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor>& from = weights_->slot(task.from);
  const std::vector<torch::Tensor>& into = weights_->slot(task.into);
  for (std::size_t p = 0; p < from.size(); ++p) {
    torch::Tensor(into[p]).copy_(from[p]);
  }
  held_.at(index_of(task.into)) = {.version = task.version, .distance = 0};
  return {};
}

ir::Status Stage::release(const ir::Release& task) {
  if (task.slot == ir::kMasterSlot) {
    return out_of_order("slot 0 is never released");
  }
  held_.at(index_of(task.slot)) = Held{};
  return {};
}

ir::Status Stage::step(const ir::Step& task) {
  if (ir::Status status = check({.version = task.version}); !status.ok()) {
    return status;
  }
  std::vector<torch::Tensor> gradients;
  gradients.reserve(leaves_.size());
  for (std::size_t p = 0; p < leaves_.size(); ++p) {
    gradients.push_back(std::move(gradient_of(p)));
    gradient_of(p).reset();
  }
  optimizer_->step(std::move(gradients));
  weights_->refresh();
  held_.front().version = task.version + 1;
  return {};
}

std::vector<std::pair<std::string, std::size_t>> Stage::parameters_of_layer(
    std::size_t layer) const {
  std::vector<std::pair<std::string, std::size_t>> places;
  for (const auto& parameter : layers_[layer].module->named_parameters()) {
    for (std::size_t p = 0; p < leaves_.size(); ++p) {
      if (leaves_[p].is_same(parameter.value())) {
        places.emplace_back(parameter.key(), p);
      }
    }
  }
  return places;
}

std::vector<torch::Tensor> Stage::gradients() const {
  std::vector<torch::Tensor> gradients;
  gradients.reserve(leaves_.size());
  for (std::size_t p = 0; p < leaves_.size(); ++p) {
    gradients.push_back(sums_[p].defined() ? sums_[p] : leaves_[p].grad());
  }
  return gradients;
}

void Stage::set_gradients(std::vector<torch::Tensor> gradients) {
  for (std::size_t p = 0; p < leaves_.size(); ++p) {
    gradient_of(p) = std::move(gradients.at(p));
  }
}

void Stage::scale_gradients(double factor) {
  const torch::NoGradGuard no_grad;
  for (std::size_t p = 0; p < leaves_.size(); ++p) {
    if (gradient_of(p).defined()) {
      gradient_of(p).mul_(factor);
    }
  }
}

}  // namespace xpipe::executor::nn
