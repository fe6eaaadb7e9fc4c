// A model as a list of layers: what a partition cuts. Every layer is one input, one output, and any
// contiguous run of layers can be a stage.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "ir/profile.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

struct Layer {
  std::string name;
  torch::nn::Sequential module;
  std::uint64_t macs = 0;        ///< multiply-adds of one sample's forward, computed, not measured
  std::int64_t output_size = 0;  ///< elements of one sample's output
};

struct Model {
  std::string name;
  std::vector<Layer> layers;
};

/// Elements of one sample: [channels, height, width].
struct SampleShape {
  std::int64_t channels = 1;
  std::int64_t height = 28;
  std::int64_t width = 28;
};

/// Trainable numbers of `layer`.
[[nodiscard]] std::int64_t parameter_count(const Layer& layer);
[[nodiscard]] std::int64_t parameter_count(const Model& model);

/// The parameters of `layers`, in order, each tensor once.
[[nodiscard]] std::vector<torch::Tensor> parameters_of(const std::vector<Layer>& layers);

/// The seed of layer `index` of a model: each draws from a generator of its own, so that no cut
/// changes any layer's initial weights.
[[nodiscard]] std::uint64_t layer_seed(std::uint64_t seed, std::size_t index);

/// A built-in model (built_in_models.cpp says what each is). Options: `mlp`: hidden, depth.
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

/// The layers of each stage. Requires: scheduler::check_partition() has nothing against it.
[[nodiscard]] std::vector<std::vector<Layer>> cut(const Model& model,
                                                  const std::vector<std::uint32_t>& partition);

}  // namespace xpipe::executor::nn
