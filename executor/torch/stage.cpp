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

/// Of a stage that one tensor enters and one leaves.
ir::Result<torch::Tensor> the_only(ir::Result<Tensors> tensors) {
  return tensors.ok() ? ir::Result<torch::Tensor>(std::move(tensors.value().back()))
                      : ir::Result<torch::Tensor>(tensors.error());
}

}  // namespace

Stage::Stage(std::vector<Layer> layers, bool takes_input_gradient, const StageOptions& options)
    : layers_(on_device(std::move(layers), options.device)),
      wiring_(options.wiring.value_or(chain_of_layers(layers_.size()))),
      pieces_(
          pieces_of(layers_, options.splits_backward ? Cut::AtParameters : Cut::Nowhere, wiring_)),
      by_layer_(pieces_of(layers_, Cut::AtLayers, wiring_)),
      takes_input_gradient_(takes_input_gradient),
      seed_(options.seed),
      loss_(options.loss),
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

PassGraph::Tail Stage::tail_of(const InFlight& pass) const {
  if (!pass.labels.defined()) {
    return {};
  }
  return [this, &pass](const torch::Tensor& output) {
    return mean_loss(loss_, output, pass.labels) * pass.share;
  };
}

/// Those that other stages read, without their graphs.
Tensors Stage::exports_of(const Tensors& tensors) const {
  Tensors exports;
  exports.reserve(pieces_.exports.size());
  for (const std::size_t number : pieces_.exports) {
    exports.push_back(tensors[number].detach());
  }
  return exports;
}

/// The exports. Requires: bound weights, a PassScope.
Tensors Stage::keep_and_run(InFlight& pass, const Tensors& inputs, Keep keep) {
  const Pieces& pieces = keep == Keep::LayerInputs ? by_layer_ : pieces_;
  Tensors tensors(pieces.tensors);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    tensors[i] = in_compute_type(inputs[i]).detach();
  }
  if (keep == Keep::Graph) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      tensors[i].requires_grad_(takes_input_gradient_);
    }
    const ForwardScope scope(weights_);
    pass.graph.emplace(pieces.pieces, tensors, tail_of(pass));
    return exports_of(tensors);
  }
  const torch::NoGradGuard no_grad;
  pass.by_layer = keep == Keep::LayerInputs;
  pass.kept.resize(pieces.tensors);
  pass.kept_versions.resize(pieces.tensors);
  run_pieces(pieces, tensors, [&](std::size_t number) {
    if (pass.by_layer || number < pieces.imports) {
      pass.kept[number] = tensors[number];
      pass.kept_versions[number] = tensors[number]._version();
    }
  });
  pass.layers_left = pass.by_layer ? pieces.pieces.size() : 1;
  return exports_of(tensors);
}

ir::Result<Tensors> Stage::forward(ir::MicroBatch micro_batch,
                                   const Tensors& inputs,
                                   const ir::WeightRead& weights,
                                   Keep keep) {
  if (ir::Status status = check(weights); !status.ok()) {
    return status.error();
  }
  bind(weights.slot);
  const PassScope scope(key_of(micro_batch));
  InFlight pass;
  Tensors exports = keep_and_run(pass, inputs, keep);
  in_flight_[micro_batch] = std::move(pass);
  return exports;
}

ir::Result<torch::Tensor> Stage::forward(ir::MicroBatch micro_batch,
                                         const torch::Tensor& input,
                                         const ir::WeightRead& weights,
                                         Keep keep) {
  return the_only(forward(micro_batch, Tensors{input}, weights, keep));
}

ir::Result<MicroBatchLoss> Stage::forward_loss(ir::MicroBatch micro_batch,
                                               const Tensors& inputs,
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
  const torch::Tensor output = keep_and_run(pass, inputs, keep).back();
  in_flight_[micro_batch] = std::move(pass);
  const torch::NoGradGuard no_grad;
  const torch::Tensor loss = mean_loss(loss_, output, labels);
  const torch::Tensor hits = correct_predictions(output, labels);
  const double tokens = static_cast<double>(labels.numel()) / static_cast<double>(labels.size(0));
  return MicroBatchLoss{.mean_and_correct = PendingNumbers(loss, hits.to(torch::kFloat64) / tokens),
                        .samples = static_cast<std::uint32_t>(labels.size(0))};
}

ir::Result<MicroBatchLoss> Stage::forward_loss(ir::MicroBatch micro_batch,
                                               const torch::Tensor& input,
                                               const torch::Tensor& labels,
                                               double share,
                                               const ir::WeightRead& weights,
                                               Keep keep) {
  return forward_loss(micro_batch, Tensors{input}, labels, share, weights, keep);
}

/// The graph of one layer, or of the whole stage. Requires: bound weights.
PassGraph Stage::rerun(const InFlight& pass, std::size_t layer) const {
  const Pieces& of_pass = pass.by_layer ? by_layer_ : pieces_;
  Tensors tensors(of_pass.tensors);
  for (std::size_t number = 0; number < tensors.size(); ++number) {
    const torch::Tensor& kept = pass.kept[number];
    if (!kept.defined()) {
      continue;
    }
    TORCH_CHECK(kept._version() == pass.kept_versions[number],
                "an input kept for a recompute was modified in place; the layer that reads it must "
                "not be an in-place one");
    tensors[number] = kept.detach();
    tensors[number].requires_grad_(number < of_pass.imports ? takes_input_gradient_
                                                            : kept.is_floating_point());
  }
  const BuffersKept buffers(layers_);
  const ForwardScope scope(weights_);
  const std::span<const Piece> pieces(of_pass.pieces);
  const bool is_last = !pass.by_layer || layer + 1 == pieces.size();
  return {pass.by_layer ? pieces.subspan(layer, 1) : pieces, tensors,
          is_last ? tail_of(pass) : PassGraph::Tail()};
}

ir::Status Stage::recompute(ir::MicroBatch micro_batch, const ir::WeightRead& weights) {
  if (ir::Status status = check(weights); !status.ok()) {
    return status;
  }
  const auto pass = in_flight_.find(micro_batch);
  if (pass == in_flight_.end() || pass->second.kept.empty()) {
    return wrong_order("no forward of this micro-batch has kept its input for a recompute");
  }
  bind(weights.slot);
  const PassScope scope(key_of(micro_batch));
  pass->second.graph.emplace(rerun(pass->second, pass->second.layers_left - 1));
  if (!pass->second.by_layer) {
    pass->second.kept.clear();
  }
  return {};
}

/// Layers run again one by one, from the last one's graph, which the recompute has made.
void Stage::backward_by_layers(InFlight& pass,
                               ir::MicroBatch micro_batch,
                               Tensors& gradients,
                               ir::SlotId slot) {
  while (true) {
    {
      const BackwardScope scope(*weights_, slot);
      pass.graph->backward(gradients);
    }
    add_up_gradients();
    pass.labels.reset();  // the loss stood behind the last layer
    if (--pass.layers_left == 0) {
      return;
    }
    const std::size_t next = pass.layers_left - 1;
    for (const std::size_t number : by_layer_.pieces[next].outputs) {
      pass.kept[number].reset();  // all that have read it are done
    }
    bind(slot);
    const PassScope scope(key_of(micro_batch));
    pass.graph.emplace(rerun(pass, next));
  }
}

/// With room for what a backward adds; a loss has none.
Tensors Stage::gradients_by_number(const Tensors& gradients) const {
  Tensors by_number(std::max(pieces_.tensors, by_layer_.tensors));
  for (std::size_t i = 0; i < pieces_.exports.size(); ++i) {
    by_number[pieces_.exports[i]] = gradients[i];
  }
  return by_number;
}

Tensors Stage::import_gradients(Tensors gradients) const {
  gradients.resize(pieces_.imports);
  return gradients;
}

ir::Result<Tensors> Stage::backward(ir::MicroBatch micro_batch,
                                    const Tensors& gradients,
                                    const ir::WeightRead& weights) {
  if (ir::Status status = check(weights); !status.ok()) {
    return status.error();
  }
  auto pass = in_flight_.extract(micro_batch);
  if (pass.empty() || !pass.mapped().graph) {
    return wrong_order("no forward of this micro-batch is waiting for a backward");
  }
  Tensors by_number = gradients_by_number(gradients);
  if (pass.mapped().by_layer) {
    backward_by_layers(pass.mapped(), micro_batch, by_number, weights.slot);
  } else {
    const BackwardScope scope(*weights_, weights.slot);
    pass.mapped().graph->backward(by_number);
    add_up_gradients();
  }
  return import_gradients(std::move(by_number));
}

ir::Result<torch::Tensor> Stage::backward(ir::MicroBatch micro_batch,
                                          const torch::Tensor& gradient,
                                          const ir::WeightRead& weights) {
  return the_only(backward(micro_batch, Tensors{gradient}, weights));
}

ir::Result<Tensors> Stage::backward_input(ir::MicroBatch micro_batch,
                                          const Tensors& gradients,
                                          const ir::WeightRead& weights) {
  if (ir::Status status = check(weights); !status.ok()) {
    return status.error();
  }
  const auto pass = in_flight_.find(micro_batch);
  if (pass == in_flight_.end() || !pass->second.graph) {
    return wrong_order("no forward of this micro-batch is waiting for a backward");
  }
  Tensors by_number = gradients_by_number(gradients);
  const BackwardScope scope(*weights_, weights.slot);
  pass->second.graph->backward_input(by_number);
  return import_gradients(std::move(by_number));
}

ir::Result<torch::Tensor> Stage::backward_input(ir::MicroBatch micro_batch,
                                                const torch::Tensor& gradient,
                                                const ir::WeightRead& weights) {
  return the_only(backward_input(micro_batch, Tensors{gradient}, weights));
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

Tensors Stage::evaluate(const Tensors& inputs) {
  const torch::NoGradGuard no_grad;
  bind(ir::kMasterSlot);
  for (Layer& layer : layers_) {
    layer.module->eval();
  }
  Tensors tensors(pieces_.tensors);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    tensors[i] = in_compute_type(moved_to(inputs[i], device_));
  }
  run_pieces(pieces_, tensors);
  for (Layer& layer : layers_) {
    layer.module->train();
  }
  return exports_of(tensors);
}

torch::Tensor Stage::evaluate(const torch::Tensor& input) {
  return evaluate(Tensors{input}).back();
}

}  // namespace xpipe::executor::nn
