// A model as a list of layers: what a partition cuts. Every layer is one input, one output; some
// may read the output of an earlier one, too (executor/torch/skips.h). Any contiguous run of layers
// can be a stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "executor/torch/skips.h"
#include "ir/profile.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

struct Layer {
  std::string name;
  torch::nn::Sequential module;
  std::uint64_t macs = 0;        ///< multiply-adds of one sample's forward, computed, not measured
  std::int64_t output_size = 0;  ///< elements of one sample's output
};

/// Parameter `parameter` of layer `layer`, by its place in parameters_of({layer}).
struct LayerParameter {
  std::size_t layer = 0;
  std::size_t parameter = 0;

  bool operator==(const LayerParameter&) const = default;
};

/// Parameters that are one: the same numbers in all places, and one gradient, the sum of theirs.
using Tie = std::vector<LayerParameter>;

/// What a model was read from, where it is to be written back; opaque to all but who read it.
struct ModelOrigin {
  ModelOrigin() = default;
  ModelOrigin(const ModelOrigin&) = delete;
  ModelOrigin& operator=(const ModelOrigin&) = delete;
  virtual ~ModelOrigin() = default;
};

struct Model {
  std::string name;
  std::vector<Layer> layers;
  std::vector<std::uint32_t> stage_layers{};    ///< the only cut there is; empty: any
  std::shared_ptr<const ModelOrigin> origin{};  ///< none of a built-in model
  /// A tied parameter is one tensor, held by several layers' modules, until cut() puts them into
  /// different stages (executor/torch/ties.h).
  std::vector<Tie> ties{};
  std::vector<Skip> skips{};
};

/// Elements of one sample: [channels, height, width] of an image, or [sequence] tokens of text.
struct SampleShape {
  std::int64_t channels = 1;
  std::int64_t height = 28;
  std::int64_t width = 28;
  std::int64_t sequence = 0;  ///< 0: an image; else the other three say nothing

  [[nodiscard]] bool is_text() const { return sequence > 0; }
};

/// Makes the model that a training begins with, from what its data are: every call the same one.
using ModelFactory = std::function<ir::Result<Model>(
    const SampleShape& input, std::int64_t classes, std::uint64_t seed)>;

/// Trainable numbers, each tensor counted once.
[[nodiscard]] std::int64_t parameter_count(const Layer& layer);
[[nodiscard]] std::int64_t parameter_count(const std::vector<Layer>& layers);
[[nodiscard]] std::int64_t parameter_count(const Model& model);

/// The parameters of `layers` that are trained (requires_grad), in order, each tensor once.
[[nodiscard]] std::vector<torch::Tensor> parameters_of(const std::vector<Layer>& layers);

/// In which type each of parameters_of(layers) is computed with where `type` is asked for: those of
/// batch norms, whose statistics are kept beside them, stay as they are. A layer that saves a
/// converted copy of its weights for the backward would not read the slot it is told to, so nothing
/// is converted on the way.
[[nodiscard]] std::vector<torch::Dtype> compute_types_of(const std::vector<Layer>& layers,
                                                         torch::Dtype type);

/// The seed of layer `index` of a model: each draws from a generator of its own, so that no cut
/// changes any layer's initial weights.
[[nodiscard]] std::uint64_t layer_seed(std::uint64_t seed, std::size_t index);

/// A built-in model (built_in_models.cpp says what each is). Options: model_options.h. `classes`:
/// the width of the last layer, of text the vocabulary.
/// Errors: Usage for an unknown name, unknown or illegal options, and inputs that the model cannot
/// take.
[[nodiscard]] ir::Result<Model> build_model(const std::string& name,
                                            const std::map<std::string, std::string>& options,
                                            const SampleShape& input,
                                            std::int64_t classes,
                                            std::uint64_t seed);

/// The model's costs by arithmetic, for a partition where nothing was measured: a multiply-add of
/// the forward counts as 1 ns, the backward twice the forward; bytes are exact, for `samples`.
/// What a layer saves is not known without running it: 0.
[[nodiscard]] ir::Profile estimated_profile(const Model& model, std::uint32_t samples);

/// The layers of each stage. A tied parameter stays one tensor within a stage; every other stage
/// that has it gets a tensor of its own with the same numbers, so `model` is cut once.
/// Requires: scheduler::check_partition() has nothing against it.
[[nodiscard]] std::vector<std::vector<Layer>> cut(const Model& model,
                                                  const std::vector<std::uint32_t>& partition);

}  // namespace xpipe::executor::nn
