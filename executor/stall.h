// What to say when a run does not move any more: which device runs or waits for what, and the ring
// of tasks that wait for each other, if there is one. Pure, so that every backend with threads,
// streams or peers reports a time-out in the same words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::executor {

/// Where a lane stands: the first of its tasks that is not done.
struct LaneHead {
  ir::TaskId task{};
  bool running = false;
  /// Not running: the first event that is missing; none: `task` is ready, its device is busy.
  std::optional<ir::TaskId> waits_for;
};

/// `heads` by LaneId; an empty one: the lane has done all that was enqueued. `owners` by DeviceId:
/// the other process that runs its tasks ("rank 1"), empty for a device of this one; none at all:
/// there is no other process.
/// Returns ErrorKind::Runtime, code "time-out": the ring first, then one diagnostic for each task
/// that runs, then one for each that waits, in the order of lanes, those for other processes first.
[[nodiscard]] ir::Error describe_stall(const ir::Schedule& schedule,
                                       const std::vector<std::optional<LaneHead>>& heads,
                                       ir::Nanos time_out,
                                       const std::vector<std::string>& owners = {});

}  // namespace xpipe::executor
