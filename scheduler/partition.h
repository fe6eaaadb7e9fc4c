// The partitioner: cuts a profile's layers, in their stated order, into contiguous stages so that
// the slowest stage is as fast as possible. Exact, and the same cut every time.
//
// Among the cuts with the smallest possible bottleneck (a stage's time is the sum of its layers'
// forward and backward), the one is taken that has, in this order,
//   1. the smallest sum of squared stage times     (the other stages are balanced, too)
//   2. the smallest sum of squared layer counts    (so do layers that cost nothing)
//   3. the lexicographically largest list of counts (larger stages first: 5 on 4 is 2,1,1,1)
// Link speeds play no part: a fast link does not excuse a bad split (field case B3).
#pragma once

#include <cstdint>
#include <vector>

#include "ir/profile.h"
#include "ir/status.h"

namespace xpipe::scheduler {

/// Layers per stage, by stage; they add up to all layers and none is 0.
using Partition = std::vector<std::uint32_t>;

/// O(stages * layers * log layers). Errors: Usage when there are more stages than layers, or none.
[[nodiscard]] ir::Result<Partition> balanced_partition(const ir::Profile& profile,
                                                       std::uint32_t stages);

/// Whether a partition given by hand covers the profile's layers, each once, with no empty stage.
/// Errors: Usage, every fault with the counts.
ir::Status check_partition(const ir::Profile& profile, const Partition& layers_per_stage);

/// The time of the slowest stage, forward and backward, for the profile's samples.
/// Requires: check_partition(...).ok().
[[nodiscard]] ir::Nanos bottleneck(const ir::Profile& profile, const Partition& layers_per_stage);

}  // namespace xpipe::scheduler
