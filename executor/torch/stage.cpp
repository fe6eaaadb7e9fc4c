#include "executor/torch/stage.h"

#include <string>
#include <utility>

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

std::vector<Layer> on_device(std::vector<Layer> layers, torch::Device device) {
  if (!device.is_cpu()) {
    for (Layer& layer : layers) {
      layer.module->to(device);
    }
  }
  return layers;
}

/// Cross-entropy over samples: outputs [samples, classes], labels [samples]; of text over samples
/// and tokens: [samples, sequence, classes] and [samples, sequence]. Never in bfloat16.
torch::Tensor mean_loss(const torch::Tensor& output, const torch::Tensor& labels) {
  const bool is_narrow = output.scalar_type() == torch::kBFloat16;
  const torch::Tensor exact = is_narrow ? output.to(torch::kFloat32) : output;
  return torch::nn::functional::cross_entropy(exact.reshape({labels.numel(), -1}),
                                              labels.flatten());
}

}  // namespace

Stage::Stage(std::vector<Layer> layers, bool takes_input_gradient, const StageOptions& options)
    : layers_(on_device(std::move(layers), options.device)),
      pieces_(pieces_of(layers_, options.splits_backward ? Cut::AtParameters : Cut::Nowhere)),
      by_layer_(pieces_of(layers_, Cut::AtLayers)),
      takes_input_gradient_(takes_input_gradient),
      seed_(options.seed),
      compute_type_(options.compute_type),
      device_(options.device),
      leaves_(parameters_of(layers_)),
      sums_(leaves_.size()) {
  std::vector<torch::Dtype> types;
  if (compute_type_) {
    types = compute_types_of(layers_, *compute_type_);
  }
  weights_ = std::make_shared<WeightSlots>(leaves_, std::move(types));
  optimizer_ =
      std::make_unique<StageOptimizer>(options.optimizer, options.prediction, options.predicts,
                                       weights_->slot(ir::kMasterSlot), options.prediction_kernel);
  bind(ir::kMasterSlot);  // from here on the leaves are of the type they are computed with
  begin_segment(1);
}

void Stage::begin_segment(std::uint16_t slots, const SegmentStart& start) {
  start_ = start;
  in_flight_.clear();
  for (torch::Tensor& leaf : leaves_) {
    leaf.mutable_grad().reset();
  }
  sums_.assign(leaves_.size(), torch::Tensor());
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
  const std::vector<torch::Tensor>& weights = weights_->compute(slot);
  for (std::size_t p = 0; p < leaves_.size(); ++p) {
    leaves_[p].set_data(weights[p]);
  }
}

PassKey Stage::key_of(ir::MicroBatch micro_batch) const {
  const std::uint32_t j = index_of(micro_batch);
  return {.seed = seed_,
          .mini_batch = start_.mini_batch + j / start_.micro_batches,
          .micro_batch = j % start_.micro_batches};
}

/// Token indices stay what they are.
torch::Tensor Stage::in_compute_type(const torch::Tensor& input) const {
  return compute_type_ && input.is_floating_point() ? input.to(*compute_type_) : input;
}

torch::Tensor& Stage::gradient_of(std::size_t parameter) {
  const bool is_summed =
      leaves_[parameter].scalar_type() != weights_->slot(ir::kMasterSlot)[parameter].scalar_type();
  return is_summed ? sums_[parameter] : leaves_[parameter].mutable_grad();
}

/// A gradient that a backward left in another type than the masters' is added to their sum.
void Stage::add_up_gradients() {
  if (!compute_type_) {
    return;
  }
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor>& masters = weights_->slot(ir::kMasterSlot);
  for (std::size_t p = 0; p < leaves_.size(); ++p) {
    torch::Tensor& gradient = leaves_[p].mutable_grad();
    if (!gradient.defined() || gradient.scalar_type() == masters[p].scalar_type()) {
      continue;
    }
    if (sums_[p].defined()) {
      sums_[p].add_(gradient);
    } else {
      sums_[p] = gradient.to(masters[p].scalar_type());
    }
    gradient.reset();
  }
}

PassGraph::Tail Stage::tail_of(const InFlight& pass, torch::Tensor* mean) const {
  if (!pass.labels.defined()) {
    return {};
  }
  return [&pass, mean](const torch::Tensor& output) {
    const torch::Tensor loss = mean_loss(output, pass.labels);
    if (mean != nullptr) {
      *mean = loss.detach();
    }
    return loss * pass.share;
  };
}

/// The output without its graph; `mean` gets the loss, if there is one. Requires: bound weights, a
/// PassScope.
torch::Tensor Stage::keep_and_run(InFlight& pass,
                                  const torch::Tensor& input,
                                  Keep keep,
                                  torch::Tensor* mean) {
  if (keep == Keep::Graph) {
    const ForwardScope scope(weights_);
    pass.graph.emplace(pieces_, in_compute_type(input), takes_input_gradient_, tail_of(pass, mean));
    return pass.graph->output().detach();
  }
  const torch::NoGradGuard no_grad;
  pass.by_layer = keep == Keep::LayerInputs;
  torch::Tensor next = in_compute_type(input).detach();
  for (const Piece& piece : pass.by_layer ? by_layer_ : pieces_) {
    if (pass.by_layer || pass.inputs.empty()) {
      pass.inputs.push_back(next);
      pass.input_versions.push_back(next._version());
    }
    next = piece.run(next);
  }
  if (const PassGraph::Tail tail = tail_of(pass, mean)) {
    tail(next);
  }
  return next;
}

ir::Result<torch::Tensor> Stage::forward(ir::MicroBatch micro_batch,
                                         const torch::Tensor& input,
                                         const ir::WeightRead& weights,
                                         Keep keep) {
  if (ir::Status status = check(weights); !status.ok()) {
    return status.error();
  }
  bind(weights.slot);
  const PassScope scope(key_of(micro_batch));
  InFlight pass;
  torch::Tensor output = keep_and_run(pass, input, keep, nullptr);
  in_flight_[micro_batch] = std::move(pass);
  return output;
}

ir::Result<MicroBatchLoss> Stage::forward_loss(ir::MicroBatch micro_batch,
                                               const torch::Tensor& input,
                                               const torch::Tensor& labels,
                                               double share,
                                               const ir::WeightRead& weights,
                                               Keep keep) {
  if (ir::Status status = check(weights); !status.ok()) {
    return status.error();
  }
  bind(weights.slot);
  const PassScope scope(key_of(micro_batch));
  InFlight pass;
  pass.labels = labels;
  pass.share = share;
  const torch::Tensor output = keep_and_run(pass, input, keep, nullptr);
  in_flight_[micro_batch] = std::move(pass);
  const torch::NoGradGuard no_grad;
  const torch::Tensor loss = mean_loss(output, labels);
  const torch::Tensor hits = output.argmax(-1).eq(labels).sum();
  const double tokens = static_cast<double>(labels.numel()) / static_cast<double>(labels.size(0));
  return MicroBatchLoss{.mean_and_correct = PendingNumbers(loss, hits.to(torch::kFloat64) / tokens),
                        .samples = static_cast<std::uint32_t>(labels.size(0))};
}

/// The graph of one layer, or of the whole stage. Requires: bound weights.
PassGraph Stage::rerun(const InFlight& pass, std::size_t layer) const {
  const torch::Tensor& input = pass.inputs[layer];
  TORCH_CHECK(input._version() == pass.input_versions[layer],
              "an input kept for a recompute was modified in place; the layer that reads it must "
              "not be an in-place one");
  const BuffersKept buffers(layers_);
  const ForwardScope scope(weights_);
  const bool is_last = layer + 1 == pass.inputs.size();
  return {pass.by_layer ? std::span(&by_layer_[layer], 1) : std::span<const Piece>(pieces_), input,
          layer > 0 ? input.is_floating_point() : takes_input_gradient_,
          is_last ? tail_of(pass, nullptr) : PassGraph::Tail()};
}

ir::Status Stage::recompute(ir::MicroBatch micro_batch, const ir::WeightRead& weights) {
  if (ir::Status status = check(weights); !status.ok()) {
    return status;
  }
  const auto pass = in_flight_.find(micro_batch);
  if (pass == in_flight_.end() || pass->second.inputs.empty()) {
    return wrong_order("no forward of this micro-batch has kept its input for a recompute");
  }
  bind(weights.slot);
  const PassScope scope(key_of(micro_batch));
  pass->second.graph.emplace(rerun(pass->second, pass->second.inputs.size() - 1));
  if (!pass->second.by_layer) {
    pass->second.inputs.clear();
  }
  return {};
}

/// Layers run again one by one, from the last one's graph, which the recompute has made.
torch::Tensor Stage::backward_by_layers(InFlight& pass,
                                        ir::MicroBatch micro_batch,
                                        const torch::Tensor& gradient,
                                        ir::SlotId slot) {
  torch::Tensor down = gradient;
  while (true) {
    {
      const BackwardScope scope(*weights_, slot);
      down = pass.graph->backward(down);
    }
    add_up_gradients();
    pass.inputs.pop_back();
    pass.labels.reset();  // the loss stood behind the last layer
    if (pass.inputs.empty() || !down.defined()) {
      return down;
    }
    bind(slot);
    const PassScope scope(key_of(micro_batch));
    pass.graph.emplace(rerun(pass, pass.inputs.size() - 1));
  }
}

ir::Result<torch::Tensor> Stage::backward(ir::MicroBatch micro_batch,
                                          const torch::Tensor& gradient,
                                          const ir::WeightRead& weights) {
  if (ir::Status status = check(weights); !status.ok()) {
    return status.error();
  }
  auto pass = in_flight_.extract(micro_batch);
  if (pass.empty() || !pass.mapped().graph) {
    return wrong_order("no forward of this micro-batch is waiting for a backward");
  }
  if (pass.mapped().by_layer) {
    return backward_by_layers(pass.mapped(), micro_batch, gradient, weights.slot);
  }
  const BackwardScope scope(*weights_, weights.slot);
  torch::Tensor down = pass.mapped().graph->backward(gradient);
  add_up_gradients();
  return down;
}

ir::Result<torch::Tensor> Stage::backward_input(ir::MicroBatch micro_batch,
                                                const torch::Tensor& gradient,
                                                const ir::WeightRead& weights) {
  if (ir::Status status = check(weights); !status.ok()) {
    return status.error();
  }
  const auto pass = in_flight_.find(micro_batch);
  if (pass == in_flight_.end() || !pass->second.graph) {
    return wrong_order("no forward of this micro-batch is waiting for a backward");
  }
  const BackwardScope scope(*weights_, weights.slot);
  return pass->second.graph->backward_input(gradient);
}

ir::Status Stage::backward_weight(ir::MicroBatch micro_batch, const ir::WeightRead& weights) {
  if (ir::Status status = check(weights); !status.ok()) {
    return status;
  }
  auto pass = in_flight_.extract(micro_batch);
  if (pass.empty() || !pass.mapped().graph) {
    return wrong_order("no input part of this micro-batch's backward is waiting for this one");
  }
  const BackwardScope scope(*weights_, weights.slot);
  pass.mapped().graph->backward_weight();
  add_up_gradients();
  return {};
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

torch::Tensor Stage::evaluate(const torch::Tensor& input) {
  const torch::NoGradGuard no_grad;
  bind(ir::kMasterSlot);
  for (Layer& layer : layers_) {
    layer.module->eval();
  }
  torch::Tensor output = in_compute_type(moved_to(input, device_));
  for (const Piece& piece : pieces_) {
    output = piece.run(output);
  }
  for (Layer& layer : layers_) {
    layer.module->train();
  }
  return output;
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
