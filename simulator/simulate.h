// The simulator: replays a schedule on a cost model and says when each task starts and ends. It
// decides nothing: order and dependencies stand in the schedule, times in the cost model, who waits
// for a shared link in scheduler/link_model.h. How it goes about it is simulator/replay.h, which is
// also what to use for many replays of one schedule.
//
//   compute 0   |0F0|0F1|                        a send starts when its data is ready and its lane
//   send 0>1        |~~~|~~~|                    (half duplex: its link) is free; the receive is
//   receive 0>1           |   |   latency later  a moment, and stage 1 may start
//   compute 1             |1F0|1F1|
#pragma once

#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/timeline.h"
#include "scheduler/cost_model.h"
#include "simulator/border_state.h"

namespace xpipe::simulator {

/// The planned timeline: each task starts as soon as its lane, all its predecessors (plus the
/// latency, from a send to its receive) and the channels of its link allow. Linear in tasks and
/// edges, sharing of links apart.
/// Requires: a legal schedule (ir/validate.h) and scheduler::check_costs(costs, schedule).ok().
/// Deterministic.
[[nodiscard]] ir::Timeline simulate(const ir::Schedule& schedule,
                                    const scheduler::CostModel& costs);

/// The same for a schedule that may not be legal, with what a long run needs besides.
/// Requires: ids in range and scheduler::check_costs(costs, schedule).ok(). Errors: Illegal,
/// "cycle": tasks that wait for each other, the ring by device.
[[nodiscard]] ir::Result<ReplayedSegment> replay_segment(ir::Schedule schedule,
                                                         const scheduler::CostModel& costs);

}  // namespace xpipe::simulator
