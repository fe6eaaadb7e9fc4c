#include "executor/torch/segments.h"

#include <algorithm>

namespace xpipe::executor::nn {

std::vector<SegmentPlan> segments_of_epoch(const EpochBatches& batches,
                                           std::uint32_t micro_batches,
                                           std::uint32_t border_every,
                                           const Position& from) {
  const auto per_epoch = static_cast<std::uint32_t>(batches.mini_batches.size());
  std::vector<SegmentPlan> segments;
  for (std::uint32_t first = from.mini_batch; first < per_epoch;) {
    std::uint32_t end = first;
    const std::uint32_t parts = std::min(micro_batches, batches.mini_batches[first].count);
    bool border = false;
    while (end < per_epoch && !border &&
           std::min(micro_batches, batches.mini_batches[end].count) == parts) {
      ++end;
      const std::uint64_t trained = std::uint64_t{from.epoch} * per_epoch + end;
      border = border_every > 0 && trained % border_every == 0;
    }
    segments.push_back({from.epoch, first, end - first, parts});
    first = end;
  }
  return segments;
}

}  // namespace xpipe::executor::nn
