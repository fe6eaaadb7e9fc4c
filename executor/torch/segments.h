// How a training is cut into segments: stretches compiled as one finite schedule each and drained
// at their ends, where checkpoints and evaluations are taken. Only arithmetic; no torch.
//
//   62 samples, batch 8, T = 4            | 8 8 8 8 8 8 8 6 |       the last one as 2 2 1 1
//    9 samples, batch 8, T = 4            | 8 | 1 |                 the last one with T = 1
//   62 samples, a border every 3          | 8 8 8 | 8 8 8 | 8 6 |
#pragma once

#include <cstdint>
#include <vector>

#include "executor/torch/sample_order.h"

namespace xpipe::executor::nn {

/// Mini-batches [first, first + mini_batches) of an epoch, between two drained borders.
struct SegmentPlan {
  std::uint32_t epoch = 0;
  std::uint32_t first = 0;
  std::uint32_t mini_batches = 0;
  std::uint32_t micro_batches = 0;  ///< T, or the samples of a last mini-batch that has fewer

  bool operator==(const SegmentPlan&) const = default;
};

/// A place between two mini-batches. The end of an epoch is the start of the next.
struct Position {
  std::uint32_t epoch = 0;
  std::uint32_t mini_batch = 0;  ///< trained before, of that epoch

  bool operator==(const Position&) const = default;
};

/// The segments of epoch `from.epoch`, from `from` to its end. Borders: `from`, before a last
/// mini-batch of fewer samples than micro-batches, the end, and, unless `border_every` is 0, after
/// every `border_every`-th mini-batch counted over the whole run.
[[nodiscard]] std::vector<SegmentPlan> segments_of_epoch(const EpochBatches& batches,
                                                         std::uint32_t micro_batches,
                                                         std::uint32_t border_every,
                                                         const Position& from);

}  // namespace xpipe::executor::nn
