// Lays two timelines of one schedule over each other, a plan and a run: how far each task was off,
// and on each device where the time went.
//
// The makespan of a timeline is split, on each device, without rest. Tasks of the compute lane are
// compute; each gap before such a task falls into three parts in this order, by its last input
// (the task of another lane that it waited for and that ended last):
//
//   device 0:  ....[   0F0   ]....
//   link 0>1:                 [0SEND_F0 ~~~ latency ~~~]
//   device 1:  [ 1B3 ]........|.........................|......[ 1F0 ]
//                      wait   ^        transfer         ^engine
//                        0F0 ends               input arrives
//
//   wait      its input was not made yet; and after the last task, the others' work
//   transfer  its input was made and on its way: queueing, sending, latency
//   engine    everything it needs was there and the lane was free
//
// So compute + transfer + wait + engine = makespan, and what the run lost, which is its split minus
// the plan's, adds up on each device to the run's makespan minus the plan's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/task.h"
#include "ir/timeline.h"
#include "traces/timeline_file.h"

namespace xpipe::traces {

struct DeviceTime {
  ir::Nanos compute = 0;
  ir::Nanos transfer = 0;
  ir::Nanos wait = 0;
  ir::Nanos engine = 0;

  bool operator==(const DeviceTime&) const = default;
};

/// By DeviceId; each sums to the makespan. Requires: a timeline that fits, and no two tasks of one
/// compute lane at once. A device's compute is on one lane.
[[nodiscard]] std::vector<DeviceTime> device_times(const ir::Schedule& schedule,
                                                   const ir::Timeline& timeline);

/// Sums over tasks.
struct PlannedMeasured {
  std::uint64_t tasks = 0;
  ir::Nanos planned = 0;
  ir::Nanos measured = 0;

  /// measured / planned; nothing where nothing was planned.
  [[nodiscard]] std::optional<double> ratio() const;

  bool operator==(const PlannedMeasured&) const = default;
};

struct KindComparison {
  ir::TaskKind kind{};
  PlannedMeasured times;

  bool operator==(const KindComparison&) const = default;
};

struct StageComparison {
  ir::StageId stage{};
  PlannedMeasured times;                ///< of all its tasks, messages included
  std::vector<KindComparison> by_kind;  ///< the kinds it has, in the order of TaskKind

  bool operator==(const StageComparison&) const = default;
};

struct TaskComparison {
  ir::TaskId task{};
  std::string text;
  ir::Nanos planned = 0;
  ir::Nanos measured = 0;
  double error = 0;  ///< |planned - measured| / measured

  bool operator==(const TaskComparison&) const = default;
};

struct Comparison {
  std::string policy;
  bool plan_measured = false;  ///< the first timeline is a run itself
  bool run_measured = false;
  std::uint64_t tasks = 0;
  ir::Nanos plan_makespan = 0;
  ir::Nanos run_makespan = 0;
  std::optional<double> makespan_ratio;  ///< run / plan; nothing when the plan takes no time
  /// Of |planned - measured| / measured over the tasks that took time in the run (the others have
  /// no such error); nothing without such tasks. The median of an even number is the mean of two.
  std::optional<double> median_error;
  std::optional<double> worst_error;
  /// The median over those of them that the plan gives time. Tasks that it holds for free (messages
  /// in memory, unpriced steps) are all 100 % off and would hide how good the prices are.
  std::optional<double> median_priced_error;
  std::vector<KindComparison> by_kind;      ///< the kinds there are, in the order of TaskKind
  std::vector<StageComparison> by_stage;    ///< by StageId
  std::vector<DeviceTime> lost;             ///< by DeviceId; run minus plan, may be negative
  std::vector<TaskComparison> worst_tasks;  ///< at most kWorstTasks, the worst first

  bool operator==(const Comparison&) const = default;
};

inline constexpr std::size_t kWorstTasks = 10;

/// Errors: BadInput when the two are not of the same schedule (tasks, their lanes or edges), naming
/// the first tasks that differ.
[[nodiscard]] ir::Result<Comparison> compare(const TimelineFile& plan, const TimelineFile& run);

}  // namespace xpipe::traces
