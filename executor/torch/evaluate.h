// What a model is worth between segments: loss and accuracy on its master weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include <torch/torch.h>

#include "executor/torch/loss.h"
#include "executor/torch/sample_source.h"
#include "executor/torch/stage.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

struct Evaluation {
  double loss = 0.0;  ///< mean over samples and the tokens of each
  double accuracy = 0.0;
};

/// Over all of `samples`, in order, 250 at a time, in the calling thread. Of text, over all tokens.
/// Requires: drained stages. Errors: Runtime with what LibTorch says; the source's.
[[nodiscard]] ir::Result<Evaluation> evaluate(const std::vector<Stage*>& stages,
                                              const SampleSource& samples,
                                              LossKind loss = LossKind::CrossEntropy);

/// Samples that go through the model at once, so that every way of evaluating adds up the same.
inline constexpr std::uint32_t kEvaluationBatch = 250;

/// The numbers of the samples of the batch that begins at `begin`, of `count` in all.
[[nodiscard]] std::vector<std::uint32_t> evaluation_batch(std::uint32_t begin, std::uint32_t count);

struct EvaluationSums {
  double loss = 0.0;
  double correct = 0.0;
  std::int64_t predictions = 0;  ///< samples, or tokens
};

/// Takes one batch through one stage: what it reads is in `made`, by the layer that made it, and
/// what others read of it is put there.
void evaluate_stage(Stage& stage, std::map<std::size_t, torch::Tensor>& made);

/// Adds one batch's loss and correct answers.
void add_batch(EvaluationSums& sums,
               const torch::Tensor& output,
               const torch::Tensor& labels,
               LossKind loss);
[[nodiscard]] Evaluation mean_of(const EvaluationSums& sums);

/// FNV-1a over the bytes of all master weights, in order.
[[nodiscard]] std::uint64_t weights_hash(const std::vector<Stage*>& stages);

/// Of one stage, after what came before it.
[[nodiscard]] std::uint64_t weights_hash(const Stage& stage, std::uint64_t so_far);
inline constexpr std::uint64_t kEmptyHash = 0xcbf29ce484222325ULL;

}  // namespace xpipe::executor::nn
