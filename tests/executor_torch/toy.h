// A small net and data that every numeric test trains, and how to train it by a schedule. Layers:
// two convolutions, a Linear without bias whose backward reads a view of its weights, another one,
// and a plain Linear: naive weight swapping gets some of them right and some of them wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "executor/torch/dataset.h"
#include "executor/torch/model.h"
#include "executor/torch/training_run.h"
#include "ir/schedule.h"
#include "scheduler/compile.h"
#include "scheduler/policy.h"

namespace xpipe::tests {

namespace nn = executor::nn;

/// Five layers, 10 weights' worth of 8 tensors; the same for the same seed.
[[nodiscard]] nn::Model toy_model(std::uint64_t seed, torch::Dtype dtype);

/// [count, 1, 8, 8] noise with a label that depends on it.
[[nodiscard]] nn::Samples toy_samples(std::uint32_t count, torch::Dtype dtype);

/// Layers per stage, for 1 to 5 stages.
[[nodiscard]] std::vector<std::uint32_t> toy_partition(std::uint32_t stages);

/// Compiles or fails the test.
[[nodiscard]] ir::Schedule compiled(const std::string& policy,
                                    std::uint32_t stages,
                                    std::uint32_t micro_batches,
                                    std::uint32_t mini_batches,
                                    const scheduler::Options& options = {},
                                    const scheduler::Passes& passes = {});

struct ToyTraining {
  nn::OptimizerConfig optimizer;
  nn::PredictionForm prediction;
  torch::Dtype dtype = torch::kFloat32;
  std::uint32_t segments = 2;
  /// Samples of each mini-batch; a schedule of as many mini-batches.
  std::vector<std::uint32_t> mini_batches{12, 12, 12, 12, 12, 10};
  std::uint64_t seed = 7;
};

[[nodiscard]] inline std::uint32_t count(const ToyTraining& training) {
  return static_cast<std::uint32_t>(training.mini_batches.size());
}

/// A policy with options.
struct PolicyCase {
  std::string policy;
  scheduler::Options options;
};

/// The segments that such a training has: every sample once, in the order they stand in.
[[nodiscard]] nn::Segment toy_segment(const ToyTraining& training, std::uint32_t epoch);

/// A training with all it refers to.
struct ToyRun {
  ir::Schedule schedule;
  nn::Samples samples;
  std::unique_ptr<nn::TrainingRun> run;
};

[[nodiscard]] std::unique_ptr<ToyRun> toy_run(const ir::Schedule& schedule,
                                              const ToyTraining& training,
                                              nn::RunOptions options = {});

enum class On : std::uint8_t { Inline, Cpu };

/// Runs one segment with `handlers` (those of `run`, possibly wrapped).
[[nodiscard]] ir::Status run_segment(ToyRun& toy,
                                     const ToyTraining& training,
                                     std::uint32_t epoch,
                                     const executor::HandlerTable& handlers,
                                     On on);

/// All segments; the test fails if one does.
void run_all(ToyRun& toy, const ToyTraining& training, On on);

/// The layers of each replica, in the order of ir::Replicas, of models that `make` makes.
[[nodiscard]] std::vector<std::vector<nn::Layer>> layers_by_replica(
    const ir::Schedule& schedule,
    const std::vector<std::uint32_t>& partition,
    const std::function<nn::Model()>& make);

/// Copies of the master weights of all stages, in the order of the model's parameters; of the first
/// replicas.
[[nodiscard]] std::vector<torch::Tensor> weights_of(nn::TrainingRun& run);

/// Passes that place the replicas of each stage on devices of their own.
[[nodiscard]] scheduler::Passes replicated(const std::vector<std::uint32_t>& replicas);

/// train by `schedule` and return the weights.
[[nodiscard]] std::vector<torch::Tensor> trained(const ir::Schedule& schedule,
                                                 const ToyTraining& training,
                                                 On on = On::Inline);

[[nodiscard]] bool same_bits(const std::vector<torch::Tensor>& a,
                             const std::vector<torch::Tensor>& b);

/// The largest difference of two elements.
[[nodiscard]] double largest_difference(const std::vector<torch::Tensor>& a,
                                        const std::vector<torch::Tensor>& b);

}  // namespace xpipe::tests
