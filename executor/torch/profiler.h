// Measures a built-in model's layers on this machine's CPU: times, bytes, parameters, as a profile
// that the simulator and the planner read. No torch in this header.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "executor/torch/train_config.h"
#include "ir/profile.h"
#include "ir/profile_json.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

struct ProfileRequest {
  std::string model = "vgg16";
  std::map<std::string, std::string> model_options;
  std::uint32_t channels = 3;  ///< of one sample
  std::uint32_t height = 32;
  std::uint32_t width = 32;
  std::uint32_t samples = 64;  ///< the batch that is timed
  std::uint32_t repeats = 5;   ///< the medians are over so many
  std::uint32_t warm_up = 2;
  std::uint32_t intra_op_threads = 1;
  OptimizerKind optimizer = OptimizerKind::Adam;  ///< whose steps are timed
  std::string date;                               ///< for the provenance, as given; may be empty
  /// After each of `warm_up` + `repeats` rounds, with those done and their number; may be empty.
  std::function<void(std::uint32_t, std::uint32_t)> on_round;
};

/// How far the rounds' times of one layer lie apart: between the quartiles, over the median.
struct LayerSpread {
  double forward = 0.0;
  double backward = 0.0;
};

struct MeasuredProfile {
  ir::Profile profile;
  std::vector<LayerSpread> spreads;       ///< by layer
  std::vector<ir::LayerSamples> samples;  ///< by layer, in the order of the rounds
  std::vector<std::string> warnings;      ///< what makes the figures doubtful
};

/// Every round runs all layers forward, then backward, as training does: weights
/// through the saved-tensor hooks, random inputs, cross-entropy with the last layer, no gradient
/// for the model's input. Medians by layer of
///   forward           the layer alone
///   backward_input    the backward that computes the input's gradient only
///   backward_weight   the whole backward less that, at least 0
///   update            the optimizer's step on the layer's parameters
/// data_loading: gathering such a batch from samples in memory, as the trainer does.
/// A layer whose first round took over twice the median is warned of: more warm-up is needed.
/// saved_bytes: storages that autograd keeps, weights apart, each counted with the first layer that
/// saves it (a ReLU's output that is the next convolution's input counts once).
/// Errors: Usage as build_model(), or for a count of 0; Runtime with what LibTorch says.
[[nodiscard]] ir::Result<MeasuredProfile> profile_model(const ProfileRequest& request);

}  // namespace xpipe::executor::nn
