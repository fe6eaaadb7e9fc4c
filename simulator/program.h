// A schedule compiled for replay: what simulate() works on, and what a sweep, a what-if or a
// benchmark prepares once and replays many times. Preparation (Program, then price() for each cost
// model) reads the schedule once; replay() then runs on flat arrays, with no allocation.
//
//   schedule ──► Program ──┐
//                          ├─► price() ─► CostTable ─► replay() ─► ReplayState ─► timeline_of()
//   cost model ────────────┘
//
// Lane by lane, one step a task: whom it waits for besides its lane, the delay on that way, its
// cost class. The receives of a lane that takes what one send lane sends, in its order, are no
// steps of their own: each is over one latency after its send. 12 bytes a step.
//
//   lane compute 0   0F0  0F1  ...          step: after 0 (nothing), cost "stage 0 forward"
//   lane send 0>1    0SEND_F0  ...          step: after 0F0, cost "lane 0>1, 1000 bytes"
//   lane compute 1   1F0  ...               step: after 0SEND_F0, delay of lane 0>1
//
// Thread-safe once built: several threads may replay one Program, each with a ReplayState.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/task.h"

namespace xpipe::simulator {

/// One task of a lane, with what it waits for besides the step before it in its lane.
struct Step {
  std::uint32_t after = 0;  ///< a step; kStart; or, with kSeveral, an index into Program::waits()
  std::uint32_t delay = 0;  ///< on the way from `after`: into CostTable::delays
  std::uint32_t cost = 0;   ///< into CostTable::durations
};

/// The step that is over at time 0: whoever waits for nothing, waits for it. No task has it.
inline constexpr std::uint32_t kStart = 0;
/// Set in Step::after: the step waits for several, listed in Program::waits().
inline constexpr std::uint32_t kSeveral = 0x80000000U;

/// One of several that a step waits for; `next` is the next one's index, or kLastWait.
struct Wait {
  std::uint32_t after = 0;
  std::uint32_t delay = 0;
  std::uint32_t next = 0;
};

inline constexpr std::uint32_t kLastWait = 0xffffffffU;

/// The steps of one lane: [begin, end), in its order.
struct StepRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  /// Of a receive lane without steps: the send lane whose messages it takes, one by one.
  std::optional<ir::LaneId> follows;
};

class Program {
 public:
  /// Linear in tasks and edges. `schedule` must outlive the program. Requires: ids in range
  /// (ir/validate.h, level shape); a cycle among lanes and edges is found by replay().
  explicit Program(const ir::Schedule& schedule);

  [[nodiscard]] const ir::Schedule& schedule() const { return *schedule_; }

  [[nodiscard]] std::span<const Step> steps() const { return steps_; }

  [[nodiscard]] std::span<const Wait> waits() const { return waits_; }

  /// By LaneId.
  [[nodiscard]] std::span<const StepRange> lanes() const { return lanes_; }

  /// A task of each cost class: all of one class cost the same on every cost model. Tasks of a
  /// class share lane, stage and kind, and messages their bytes.
  [[nodiscard]] std::span<const ir::TaskId> classes() const { return classes_; }

  /// The step of a task that has one. Requires: it is no receive of a lane that follows another.
  [[nodiscard]] std::uint32_t step_of(ir::LaneId lane, std::size_t index_in_lane) const {
    return lanes_[ir::index_of(lane)].begin + static_cast<std::uint32_t>(index_in_lane);
  }

  /// All heap bytes of the program.
  [[nodiscard]] std::size_t heap_bytes() const;

 private:
  friend class ProgramBuilder;

  const ir::Schedule* schedule_;
  std::vector<Step> steps_;  ///< the first is kStart
  std::vector<Wait> waits_;
  std::vector<StepRange> lanes_;
  std::vector<ir::TaskId> classes_;
};

}  // namespace xpipe::simulator
