// The critical path: a chain of tasks from the start of the segment to its end, each of which began
// at the very moment when what it waited for was there. Making a task on it faster may make the
// segment faster; nothing else can.
#pragma once

#include <array>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/task.h"
#include "ir/timeline.h"
#include "scheduler/cost_model.h"

namespace xpipe::simulator {

struct CriticalPath {
  std::vector<ir::Span> tasks;                      ///< in time; gaps between them are latencies
  std::array<ir::Nanos, ir::kTaskKinds> by_kind{};  ///< time on the path by TaskKind
  /// Of by_kind, what overlap slow-down and sharing of channels added to the tasks on the path.
  ir::Nanos slowed = 0;
  ir::Nanos latency = 0;  ///< in flight on links; with all of by_kind it adds up to the makespan
};

/// Walks back from the first of the tasks that end last. Of several that a task waited for, the one
/// named first by TaskGraph::predecessors is taken (edges in their order, then the lane); where a
/// half-duplex or shared link was waited for, the transfer that held it. Linear in tasks and edges,
/// and on the path in lanes where it waits for a channel.
/// Requires: a legal schedule and simulate()'s timeline of it on `costs`.
[[nodiscard]] CriticalPath critical_path(const ir::Schedule& schedule,
                                         const ir::Timeline& timeline,
                                         const scheduler::CostModel& costs);

}  // namespace xpipe::simulator
