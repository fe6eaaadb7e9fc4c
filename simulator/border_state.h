// The state of a replay at the borders between mini-batches, relative to the border: two borders
// with the same state have the same future, as far as what is left to run is the same. Read off a
// timeline, so it holds for every way of replaying.
//
//   border m: the moment at which the first task of mini-batch m starts
//   state:    by lane, which task is next (its mini-batch counted from the border's), how much
//             longer what runs or is on its way will take, and since when a transfer that waits for
//             channels has been ready (its place in line)
//
// What started before that moment is the past; what starts at it or later is the future.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/timeline.h"
#include "scheduler/cost_model.h"
#include "simulator/replay.h"

namespace xpipe::simulator {

/// One segment, replayed in full.
struct ReplayedSegment {
  ir::Schedule schedule;
  ir::Timeline timeline;
  std::vector<WorkLeft> work_left = {};  ///< in time; empty unless the replay was fluid
};

struct Border {
  std::uint32_t mini_batch = 0;
  ir::Nanos time = 0;
  std::vector<std::uint32_t> cursors;  ///< by LaneId: how many of its tasks are the past
  std::vector<std::int64_t> state;     ///< relative to mini_batch and time
};

/// Two borders with one state.
struct Repeat {
  Border first;
  Border second;
  std::uint32_t earliest = 0;  ///< the first border with a state that comes back after period()

  [[nodiscard]] std::uint32_t period() const { return second.mini_batch - first.mini_batch; }

  [[nodiscard]] ir::Nanos period_ns() const { return second.time - first.time; }
};

/// Repeats of a segment, each of another period, the shortest first; at most `most`. Of those of
/// one period the middle one: in the beginning the weights that are read may still differ, towards
/// the end tasks are missing. Linear in tasks, and in borders times lanes and periods.
[[nodiscard]] std::vector<Repeat> find_repeats(const ReplayedSegment& segment,
                                               const scheduler::CostModel& costs,
                                               std::size_t most);

/// The borders of two mini-batches, if they have one state.
[[nodiscard]] std::optional<Repeat> repeat_at(const ReplayedSegment& segment,
                                              const scheduler::CostModel& costs,
                                              std::uint32_t first,
                                              std::uint32_t second);

/// Whether `longer` is `shorter` with the tasks between the two borders of `repeat` (of `shorter`)
/// once more behind them: tasks, meanings, lanes and edges, all that comes after counted on by the
/// period; and, where transfers contend, in the same order of ids.
[[nodiscard]] bool is_one_period_longer(const ir::Schedule& shorter,
                                        const ir::Schedule& longer,
                                        const Repeat& repeat,
                                        const scheduler::CostModel& costs);

}  // namespace xpipe::simulator
