// How the gradients of micro-batches are weighted, so that each step is one with the mean over all
// samples whose gradients it uses, whatever T, the sizes of the mini-batches and the number of
// mini-batches a step (field cases C3, C4). No torch.
//
//   share    of a micro-batch's mean loss: its samples over those of the step that uses it, where
//            all stages step for the same mini-batches
//   factor   what a stage's sum is multiplied by before its step: 1, but where stages step for
//            different mini-batches (whole mini-batches in turn on 2 replicas of one stage and 3 of
//            another); there shares are over one common number of samples
#pragma once

#include <cstdint>
#include <vector>

#include "executor/torch/train_recipe.h"
#include "ir/ids.h"
#include "ir/schedule.h"

namespace xpipe::executor::nn {

class StepWeights {
 public:
  StepWeights() = default;

  /// `samples`: of each mini-batch of `schedule`; none is 0. With LossReduction::Sum a share is the
  /// micro-batch's samples, and no factor is needed.
  StepWeights(const ir::Schedule& schedule,
              const std::vector<std::uint32_t>& samples,
              LossReduction reduction = LossReduction::Mean);

  /// Of a micro-batch with so many samples.
  [[nodiscard]] double share(ir::MiniBatch mini_batch, std::uint32_t samples) const {
    return static_cast<double>(samples) / static_cast<double>(reference_[index_of(mini_batch)]);
  }

  /// For the step of `stage` that is named `mini_batch`.
  [[nodiscard]] double factor(ir::StageId stage, ir::MiniBatch mini_batch) const {
    return factors_.empty() ? 1.0 : factors_[index_of(stage)][index_of(mini_batch)];
  }

 private:
  std::vector<std::uint64_t> reference_;      ///< samples, by mini-batch
  std::vector<std::vector<double>> factors_;  ///< by stage, then mini-batch; empty: all are 1
};

}  // namespace xpipe::executor::nn
