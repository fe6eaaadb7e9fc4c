// An independent oracle: trains the toy net in plain loops, one mini-batch after another, on one
// model instance whose weights are written in place before every forward and again before every
// backward. It keeps a full copy of the weights and moments of every version, knows no schedule,
// slot, hook or stage thread, and says which version a pass reads by the formulas of methods.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "tests/executor_torch/toy.h"

namespace xpipe::tests {

/// The weights of `version` of a stage, predicted `distance` steps ahead; counts from the start of
/// the segment.
struct Read {
  std::int64_t version = 0;
  std::int64_t distance = 0;
};

struct Rules {
  /// Of stage k and micro-batch j of a segment, both from 0.
  std::function<Read(std::int64_t k, std::int64_t j)> forward;
  std::function<Read(std::int64_t k, std::int64_t j)> backward;
};

/// methods.md 1, with floor and the paper's formula. `predict`: both, forward or none (6.2).
[[nodiscard]] Rules xpipe_rules(std::int64_t stages,
                                std::int64_t micro_batches,
                                const std::string& predict);
/// methods.md 2, variant 1 or 2.
[[nodiscard]] Rules spectrain_rules(std::int64_t stages, int variant);
/// methods.md 3.1, weight stashing without vertical sync.
[[nodiscard]] Rules pipedream_rules(std::int64_t stages);
/// As `rules`, but nobody predicts: the control that shows that a test can fail.
[[nodiscard]] Rules unpredicted(Rules rules);

/// The weights at the end of `training`, with the toy net cut for `stages`.
[[nodiscard]] std::vector<torch::Tensor> replayed(const ToyTraining& training,
                                                  std::uint32_t stages,
                                                  std::uint32_t micro_batches,
                                                  const Rules& rules);

/// Sequential training as a user of LibTorch writes it: torch::optim, backward() for every
/// micro-batch, one step a mini-batch.
[[nodiscard]] std::vector<torch::Tensor> plainly_trained(const ToyTraining& training,
                                                         std::uint32_t micro_batches);

}  // namespace xpipe::tests
