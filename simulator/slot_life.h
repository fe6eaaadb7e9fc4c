// How long each copy of a stage's weights lives: from the task that writes its slot to its release,
// or to its last reader where nothing releases it. Found by replaying a schedule in a topological
// order; staleness and memory both count from it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"

namespace xpipe::simulator {

/// One filling of one slot; the master is no copy.
struct SlotLife {
  ir::StageId stage{};
  std::size_t replica = 0;  ///< of its stage, as of ir::Replicas
  ir::SlotId slot{};
  ir::TaskId written_by{};
  ir::TaskId last_use{};  ///< its release or last reader; written_by when nobody reads it
  bool is_prediction = false;
};

/// In the order of `order`, in which the tasks of a stage on one device follow each other as they
/// do: a topological order, or compute lane by compute lane.
/// Requires: a legal schedule.
[[nodiscard]] std::vector<SlotLife> slot_lives(const ir::Schedule& schedule,
                                               std::span<const ir::TaskId> order);

}  // namespace xpipe::simulator
