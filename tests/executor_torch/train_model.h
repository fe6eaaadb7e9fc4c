// Trains any model on any samples by a schedule, inline: what tests of models and data share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "executor/torch/model.h"
#include "executor/torch/sample_source.h"
#include "executor/torch/training_run.h"
#include "ir/schedule.h"

namespace xpipe::tests {

namespace nn = executor::nn;

struct ModelTraining {
  std::vector<std::uint32_t> partition{1};
  std::string policy = "gpipe";
  std::uint32_t micro_batches = 2;
  /// Samples of each mini-batch, taken in the order they stand in; then again, for every epoch.
  std::vector<std::uint32_t> mini_batches{4, 4, 4};
  std::uint32_t epochs = 1;
  std::uint64_t seed = 1;
  nn::OptimizerConfig optimizer;
};

struct TrainedModel {
  std::vector<double> losses;          ///< of each mini-batch
  std::vector<double> accuracies;      ///< likewise
  std::vector<torch::Tensor> weights;  ///< the masters, stage by stage
};

/// The test fails if the training does.
[[nodiscard]] TrainedModel train_model(const nn::Model& model,
                                       const nn::SampleSource& samples,
                                       const ModelTraining& training);

/// The status of a training that may fail.
[[nodiscard]] ir::Status try_training(const nn::Model& model,
                                      const nn::SampleSource& samples,
                                      const ModelTraining& training);

/// Runs the layers one after the other.
[[nodiscard]] torch::Tensor forward_through(const nn::Model& model, const torch::Tensor& input);

/// Gradients of all parameters for sum(output^2), forward on the weights that are there, backward
/// on `for_backward` written in place: the slow, sure way. The weights are afterwards what they
/// were.
[[nodiscard]] std::vector<torch::Tensor> gradients_in_place(
    const nn::Model& model,
    const torch::Tensor& input,
    const std::vector<torch::Tensor>& for_backward);

/// The same through the saved-tensor hooks.
[[nodiscard]] std::vector<torch::Tensor> gradients_by_hooks(
    const nn::Model& model,
    const torch::Tensor& input,
    const std::vector<torch::Tensor>& for_backward);

}  // namespace xpipe::tests
