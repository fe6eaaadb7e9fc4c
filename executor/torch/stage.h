// One stage: its layers, its weights in slots, what its forwards keep for their backwards, one
// gradient buffer a parameter, and its optimizer. Every call names the weights it means to read;
// the stage checks that its slot holds just those.
//
//   slot 0  master, version v                 forward:   module's parameters point at the slot
//   slot 1  predicted from v1, 2 steps ahead  backward:  saved weights come from the slot
//   slot 2  ...                               step:      slot 0, v -> v + 1
//
// No weights are copied but where the schedule says so (predict, stash). What a forward keeps for
// its backward is executor/torch/pass_graph.h's business; with a recompute it keeps inputs only,
// and runs again when the recompute says so, with the same dropout masks and without counting a
// second time in a batch norm's running statistics. Of layers recomputed one by one the recompute
// runs the last one, the backward the others, each just before it is needed, on the input that the
// forward gave it.
//
// Where passes compute in another type than the masters' (compute_config.h), a step also makes the
// copy of slot 0 that passes read, and each backward's gradients are added up in the masters' type.
//
// Thread-safety: none; a stage's tasks follow each other. Faults: Internal "wrong-weights" when a
// slot holds something else than the task expects; else it throws what LibTorch throws.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "executor/prediction_kernel.h"
#include "executor/torch/dropout.h"
#include "executor/torch/gpu_tensors.h"
#include "executor/torch/loss.h"
#include "executor/torch/model.h"
#include "executor/torch/pass_graph.h"
#include "executor/torch/stage_optimizer.h"
#include "executor/torch/train_config.h"
#include "executor/torch/weight_hooks.h"
#include "ir/ids.h"
#include "ir/status.h"
#include "ir/task.h"

namespace xpipe::executor::nn {

struct StageOptions {
  OptimizerConfig optimizer;
  PredictionForm prediction;
  bool predicts = false;   ///< keep the history that predictions need
  std::uint64_t seed = 0;  ///< of the dropouts' masks
  LossKind loss = LossKind::CrossEntropy;
  bool splits_backward = false;  ///< some backwards come in two parts
  /// What crosses the stage's borders; none: one tensor at either.
  std::optional<StageWiring> wiring = std::nullopt;
  /// That passes compute in; none: that of the weights.
  std::optional<torch::Dtype> compute_type = std::nullopt;
  torch::Device device = torch::kCPU;            ///< where the layers are moved to
  PredictionKernel prediction_kernel = nullptr;  ///< of that device; none: the CPU's
};

/// What a forward keeps until its backward, or its recompute.
enum class Keep : std::uint8_t {
  Graph,        ///< all that autograd saves
  Input,        ///< the stage's input; a recompute runs the stage again
  LayerInputs,  ///< the layers' inputs; the layers run again one by one
};

/// Where a segment begins in its run, for masks that borders do not change.
struct SegmentStart {
  std::uint64_t mini_batch = 0;     ///< its first one, counted over the run
  std::uint32_t micro_batches = 1;  ///< T of the segment
};

/// What the loss says of one micro-batch; on a GPU, as soon as it is known there.
struct MicroBatchLoss {
  /// The loss over its samples and the tokens of each; samples that were right, of text a
  /// sample by the share of its tokens.
  PendingNumbers mean_and_correct;
  std::uint32_t samples = 0;
};

class Stage {
 public:
  /// The stage's first weights are those of `layers`, in their place. `takes_input_gradient`: there
  /// is a stage before this one.
  Stage(std::vector<Layer> layers, bool takes_input_gradient, const StageOptions& options);

  /// Begins a segment: `slots` slots at least, slot 0 at version 0, the others empty, nothing in
  /// flight.
  void begin_segment(std::uint16_t slots, const SegmentStart& start = {});

  /// What other stages read, in the order of StageWiring::exports, without its graph. `inputs`: in
  /// the order of StageWiring::imports.
  [[nodiscard]] ir::Result<Tensors> forward(ir::MicroBatch micro_batch,
                                            const Tensors& inputs,
                                            const ir::WeightRead& weights,
                                            Keep keep = Keep::Graph);

  /// forward() of a stage that one tensor enters and one leaves.
  [[nodiscard]] ir::Result<torch::Tensor> forward(ir::MicroBatch micro_batch,
                                                  const torch::Tensor& input,
                                                  const ir::WeightRead& weights,
                                                  Keep keep = Keep::Graph);

  /// forward() of the last stage: the mean loss, of which `share` counts. With the samples over
  /// those of the mini-batch the gradients add up to its mean's, with the samples to its sum's.
  [[nodiscard]] ir::Result<MicroBatchLoss> forward_loss(ir::MicroBatch micro_batch,
                                                        const Tensors& inputs,
                                                        const torch::Tensor& labels,
                                                        double share,
                                                        const ir::WeightRead& weights,
                                                        Keep keep = Keep::Graph);

  /// forward_loss() of a stage that one tensor enters.
  [[nodiscard]] ir::Result<MicroBatchLoss> forward_loss(ir::MicroBatch micro_batch,
                                                        const torch::Tensor& input,
                                                        const torch::Tensor& labels,
                                                        double share,
                                                        const ir::WeightRead& weights,
                                                        Keep keep = Keep::Graph);

  /// The forward again, of a micro-batch that kept inputs only.
  [[nodiscard]] ir::Status recompute(ir::MicroBatch micro_batch, const ir::WeightRead& weights);

  /// Adds to the gradients. `gradients`: those of the exports; after a forward_loss() undefined.
  /// Returns those of the imports; undefined where nothing depends on one.
  [[nodiscard]] ir::Result<Tensors> backward(ir::MicroBatch micro_batch,
                                             const Tensors& gradients,
                                             const ir::WeightRead& weights);

  /// backward() of a stage that one tensor enters and one leaves.
  [[nodiscard]] ir::Result<torch::Tensor> backward(ir::MicroBatch micro_batch,
                                                   const torch::Tensor& gradient,
                                                   const ir::WeightRead& weights);

  /// backward() in two parts: the first one returns the gradients of the imports, the second one
  /// adds to the gradients. Each computes with the weights that it names.
  [[nodiscard]] ir::Result<Tensors> backward_input(ir::MicroBatch micro_batch,
                                                   const Tensors& gradients,
                                                   const ir::WeightRead& weights);
  [[nodiscard]] ir::Result<torch::Tensor> backward_input(ir::MicroBatch micro_batch,
                                                         const torch::Tensor& gradient,
                                                         const ir::WeightRead& weights);
  [[nodiscard]] ir::Status backward_weight(ir::MicroBatch micro_batch,
                                           const ir::WeightRead& weights);

  [[nodiscard]] ir::Status predict(const ir::Predict& task);
  [[nodiscard]] ir::Status stash(const ir::Stash& task);
  [[nodiscard]] ir::Status release(const ir::Release& task);
  [[nodiscard]] ir::Status step(const ir::Step& task);

  /// The exports on the master weights, nothing kept; without dropout, batch norms with their
  /// running statistics. `inputs`: in the order of the imports.
  [[nodiscard]] Tensors evaluate(const Tensors& inputs);

  /// evaluate() of a stage that one tensor enters and one leaves.
  [[nodiscard]] torch::Tensor evaluate(const torch::Tensor& input);

  [[nodiscard]] const StageWiring& wiring() const { return wiring_; }

  /// Plain tensors by parameter, the memory itself.
  [[nodiscard]] const std::vector<torch::Tensor>& weights(ir::SlotId slot = ir::kMasterSlot) const {
    return weights_->slot(slot);
  }

  [[nodiscard]] ir::Version version() const { return *held_.front().version; }

  [[nodiscard]] const StageOptimizer& optimizer() const { return *optimizer_; }

  [[nodiscard]] StageOptimizer& optimizer() { return *optimizer_; }

  [[nodiscard]] const std::vector<Layer>& layers() const { return layers_; }

  /// The parameters of one of layers(), by name in its module; each with its place in weights().
  [[nodiscard]] std::vector<std::pair<std::string, std::size_t>> parameters_of_layer(
      std::size_t layer) const;

  /// The gradients added up so far, by parameter; undefined where there is none yet. The memory
  /// itself.
  [[nodiscard]] std::vector<torch::Tensor> gradients() const;

  /// Slots that have memory, the master's included.
  [[nodiscard]] std::size_t slots() const { return weights_->slots(); }

  /// Puts `gradients`, by parameter, in their place; those of the parameters' sizes or undefined.
  void set_gradients(std::vector<torch::Tensor> gradients);

  void scale_gradients(double factor);

  /// Storages of weights over all slots and parameters.
  [[nodiscard]] std::size_t weight_storages() const { return weights_->storages(); }

  /// Of all slots but the masters, and of the copy of these that passes read, if there is one.
  [[nodiscard]] std::size_t slot_bytes() const { return weights_->slot_bytes(); }

  /// Where it computes: inputs, labels and gradients must be there.
  [[nodiscard]] torch::Device device() const { return device_; }

 private:
  /// A micro-batch between its forward and the end of its backward.
  struct InFlight {
    std::optional<PassGraph> graph;  ///< until the backward; of one layer where they go one by one
    Tensors kept;  ///< for a recompute, by number: the stage's inputs, or those of all layers
    std::vector<std::uint32_t> kept_versions;  ///< autograd's counters: nobody may write to them
    std::size_t layers_left = 0;               ///< without a graph, where they go one by one
    torch::Tensor labels;                      ///< of a loss
    double share = 0.0;
    bool by_layer = false;
  };

  /// What a slot holds; no version: nothing.
  struct Held {
    std::optional<ir::Version> version;
    ir::Distance distance = 0;
  };

  [[nodiscard]] ir::Status check(const ir::WeightRead& weights) const;
  void bind(ir::SlotId slot);
  [[nodiscard]] Tensors keep_and_run(InFlight& pass, const Tensors& inputs, Keep keep);
  [[nodiscard]] PassGraph::Tail tail_of(const InFlight& pass) const;
  [[nodiscard]] PassGraph rerun(const InFlight& pass, std::size_t layer) const;
  void backward_by_layers(InFlight& pass,
                          ir::MicroBatch micro_batch,
                          Tensors& gradients,
                          ir::SlotId slot);
  [[nodiscard]] Tensors exports_of(const Tensors& tensors) const;
  [[nodiscard]] Tensors gradients_by_number(const Tensors& gradients) const;
  [[nodiscard]] Tensors import_gradients(Tensors gradients) const;
  [[nodiscard]] PassKey key_of(ir::MicroBatch micro_batch) const;
  [[nodiscard]] torch::Tensor in_compute_type(const torch::Tensor& input) const;
  void add_up_gradients();
  /// Where the gradient of a parameter is: autograd's, or the sum.
  [[nodiscard]] torch::Tensor& gradient_of(std::size_t parameter);

  std::vector<Layer> layers_;
  StageWiring wiring_;
  Pieces pieces_;    ///< of graphs over the whole stage
  Pieces by_layer_;  ///< a piece each
  bool takes_input_gradient_ = false;
  std::uint64_t seed_ = 0;
  LossKind loss_ = LossKind::CrossEntropy;
  SegmentStart start_;
  std::optional<torch::Dtype> compute_type_;
  torch::Device device_ = torch::kCPU;
  std::vector<torch::Tensor> leaves_;  ///< the modules' parameters
  /// Gradients of leaves that are not of their masters' type; undefined for all others.
  std::vector<torch::Tensor> sums_;
  std::shared_ptr<WeightSlots> weights_;
  std::unique_ptr<StageOptimizer> optimizer_;
  std::vector<Held> held_;  ///< by slot
  std::map<ir::MicroBatch, InFlight> in_flight_;
};

}  // namespace xpipe::executor::nn
