// Staleness, measured: replays the versions of a schedule and records what each pass really read.
// Nothing is looked up in a policy's promises or in what the tasks say of themselves; slots are
// filled by the steps, predictions and stashes that come before, in any topological order.
//
//   staleness of a read = steps of this stage for mini-batches before i (what sequential training
//                         would have made) - the version in the slot read     (design.md §3)
#pragma once

#include <cstdint>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"

namespace xpipe::simulator {

/// What one pass of one micro-batch found in the slot that it reads.
struct VersionRead {
  ir::Version version = 0;    ///< the version that was, or was predicted from
  ir::Distance distance = 0;  ///< 0: not predicted
  std::int64_t staleness = 0;

  bool operator==(const VersionRead&) const = default;
};

/// Storages of a stage's weights that are alive at once.
struct StorageCount {
  std::uint32_t versions_held = 1;  ///< 1 (the master) + stash_slots + prediction_slots
  std::uint32_t stash_slots = 0;
  std::uint32_t prediction_slots = 0;

  bool operator==(const StorageCount&) const = default;
};

struct StageStaleness {
  std::vector<VersionRead> forward;          ///< by micro-batch: the ramp at the start included
  std::vector<VersionRead> backward;         ///< by micro-batch; of a split backward the input part
  std::vector<VersionRead> backward_weight;  ///< by micro-batch; empty where no backward is split

  /// Steady state: the longest run of mini-batches up to the last one in which all reads (staleness
  /// and distance, micro-batch by micro-batch) are alike, if it is longer than one mini-batch; else
  /// the second half of the segment, and `is_steady` is false. Of a replicated stage, each is
  /// compared with the one that comes as many later as there are replicas.
  std::uint32_t steady_from = 0;  ///< the first mini-batch of it
  bool is_steady = false;
  std::int64_t forward_min = 0;  ///< in steady state, as all that follow
  std::int64_t forward_max = 0;
  std::int64_t backward_min = 0;
  std::int64_t backward_max = 0;
  ir::Distance predict_forward = 0;  ///< the largest
  ir::Distance predict_backward = 0;

  /// At the first moment of the whole segment with the most storages on one device. A slot is alive
  /// from the task that writes it to its release, or to its last reader before the next write where
  /// nothing releases it.
  StorageCount peak;
};

/// By StageId. Requires: a legal schedule.
[[nodiscard]] std::vector<StageStaleness> measure_staleness(const ir::Schedule& schedule);

}  // namespace xpipe::simulator
