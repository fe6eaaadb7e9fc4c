#include "executor/torch/stage.h"

#include <string>
#include <utility>

#include "executor/torch/dropout.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;
using ir::index_of;

std::string describe(std::optional<ir::Version> version, ir::Distance distance) {
  if (!version) {
    return "nothing";
  }
  return "version " + std::to_string(*version) +
         (distance > 0 ? " predicted " + std::to_string(distance) + " ahead" : "");
}

ir::Error wrong_order(std::string what) {
  return ir::make_error(ErrorKind::Internal, "wrong-order", "", std::move(what));
}

}  // namespace

Stage::Stage(std::vector<Layer> layers, bool takes_input_gradient, const StageOptions& options)
    : layers_(std::move(layers)),
      takes_input_gradient_(takes_input_gradient),
      seed_(options.seed),
      leaves_(parameters_of(layers_)) {
  weights_ = std::make_shared<WeightSlots>(leaves_);
  optimizer_ = std::make_unique<StageOptimizer>(options.optimizer, options.prediction,
                                                options.predicts, weights_->slot(ir::kMasterSlot));
  begin_segment(1);
}

void Stage::begin_segment(std::uint16_t slots, const SegmentStart& start) {
  start_ = start;
  in_flight_.clear();
  for (torch::Tensor& leaf : leaves_) {
    leaf.mutable_grad().reset();
  }
  weights_->reserve(slots);
  held_.assign(weights_->slots(), Held{});
  held_.front().version = 0;
}

ir::Status Stage::check(const ir::WeightRead& weights) const {
  const std::size_t slot = index_of(weights.slot);
  const Held held = slot < held_.size() ? held_[slot] : Held{};
  if (held.version == weights.version && held.distance == weights.distance) {
    return {};
  }
  return ir::make_error(ErrorKind::Internal, "wrong-weights", "",
                        "slot " + std::to_string(slot) + " holds " +
                            describe(held.version, held.distance) + ", the task expects " +
                            describe(weights.version, weights.distance));
}

void Stage::bind(ir::SlotId slot) {
  const std::vector<torch::Tensor>& weights = weights_->slot(slot);
  for (std::size_t p = 0; p < leaves_.size(); ++p) {
    leaves_[p].set_data(weights[p]);
  }
}

torch::Tensor Stage::run_layers(const torch::Tensor& input) {
  torch::Tensor output = input;
  for (Layer& layer : layers_) {
    output = layer.module->forward(output);
  }
  return output;
}

torch::Tensor Stage::run_layers(ir::MicroBatch micro_batch, const torch::Tensor& input) {
  const std::uint32_t j = index_of(micro_batch);
  const PassScope pass({.seed = seed_,
                        .mini_batch = start_.mini_batch + j / start_.micro_batches,
                        .micro_batch = j % start_.micro_batches});
  const ForwardScope scope(weights_);
  return run_layers(input);
}

torch::Tensor Stage::leaf_of(const torch::Tensor& input) const {
  torch::Tensor leaf = input.detach();
  leaf.requires_grad_(takes_input_gradient_);
  return leaf;
}

ir::Result<torch::Tensor> Stage::forward(ir::MicroBatch micro_batch,
                                         const torch::Tensor& input,
                                         const ir::WeightRead& weights) {
  if (ir::Status status = check(weights); !status.ok()) {
    return status.error();
  }
  bind(weights.slot);
  InFlight pass{leaf_of(input), {}};
  pass.root = run_layers(micro_batch, pass.input);
  torch::Tensor output = pass.root.detach();
  in_flight_[micro_batch] = std::move(pass);
  return output;
}

ir::Result<MicroBatchLoss> Stage::forward_loss(ir::MicroBatch micro_batch,
                                               const torch::Tensor& input,
                                               const torch::Tensor& labels,
                                               double share,
                                               const ir::WeightRead& weights) {
  if (ir::Status status = check(weights); !status.ok()) {
    return status.error();
  }
  bind(weights.slot);
  const ForwardScope scope(weights_);
  InFlight pass{leaf_of(input), {}};
  const torch::Tensor output = run_layers(micro_batch, pass.input);
  const torch::Tensor loss = torch::nn::functional::cross_entropy(output, labels);
  pass.root = loss * share;
  in_flight_[micro_batch] = std::move(pass);
  const torch::NoGradGuard no_grad;
  const torch::Tensor hits = output.argmax(1).eq(labels).sum();
  return MicroBatchLoss{.mean = loss.item<double>(),
                        .correct = static_cast<std::uint32_t>(hits.item<std::int64_t>()),
                        .samples = static_cast<std::uint32_t>(labels.size(0))};
}

ir::Result<torch::Tensor> Stage::backward(ir::MicroBatch micro_batch,
                                          const torch::Tensor& gradient,
                                          const ir::WeightRead& weights) {
  if (ir::Status status = check(weights); !status.ok()) {
    return status.error();
  }
  auto pass = in_flight_.extract(micro_batch);
  if (pass.empty()) {
    return wrong_order("no forward of this micro-batch is waiting for a backward");
  }
  if (!pass.mapped().root.requires_grad()) {
    return torch::Tensor();  // a first stage without parameters: nothing depends on its graph
  }
  {
    const BackwardScope scope(*weights_, weights.slot);
    torch::autograd::backward({pass.mapped().root}, {gradient});
  }
  return takes_input_gradient_ ? pass.mapped().input.grad() : torch::Tensor();
}

ir::Status Stage::predict(const ir::Predict& task) {
  if (ir::Status status = check({.version = task.version, .slot = task.from}); !status.ok()) {
    return status;
  }
  if (task.from != ir::kMasterSlot || task.into == ir::kMasterSlot) {
    return wrong_order("predictions go from slot 0 into another one");
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
    return wrong_order("slot 0 is never released");
  }
  held_.at(index_of(task.slot)) = Held{};
  return {};
}

ir::Status Stage::step(const ir::Step& task) {
  if (ir::Status status = check({.version = task.version}); !status.ok()) {
    return status;
  }
  std::vector<torch::Tensor> gradients;
  for (torch::Tensor& leaf : leaves_) {
    gradients.push_back(std::move(leaf.mutable_grad()));
    leaf.mutable_grad().reset();
  }
  optimizer_->step(std::move(gradients));
  held_.front().version = task.version + 1;
  return {};
}

torch::Tensor Stage::evaluate(const torch::Tensor& input) {
  const torch::NoGradGuard no_grad;
  bind(ir::kMasterSlot);
  for (Layer& layer : layers_) {
    layer.module->eval();
  }
  torch::Tensor output = run_layers(input);
  for (Layer& layer : layers_) {
    layer.module->train();
  }
  return output;
}

std::vector<torch::Tensor> Stage::gradients() const {
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& leaf : leaves_) {
    gradients.push_back(leaf.grad());
  }
  return gradients;
}

}  // namespace xpipe::executor::nn
