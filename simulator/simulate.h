// The simulator's loop: replays a schedule on a cost model, event by event, and says when each task
// starts and ends. It decides nothing: order and dependencies stand in the schedule, times in the
// cost model, who waits for a shared link in scheduler/link_model.h.
//
//   compute 0   |0F0|0F1|                        a send starts when its data is ready and its lane
//   send 0>1        |~~~|~~~|                    (half duplex: its link) is free; the receive is
//   receive 0>1           |   |   latency later  a moment, and stage 1 may start
//   compute 1             |1F0|1F1|
#pragma once

#include "ir/schedule.h"
#include "ir/timeline.h"
#include "scheduler/cost_model.h"

namespace xpipe::simulator {

/// The planned timeline: each task starts as soon as its lane and all its predecessors are done
/// (plus the latency, from a send to its receive). Linear in tasks and edges, times the logarithm
/// of the number of events pending at once (about the number of lanes).
/// Requires: a legal schedule (ir/validate.h) and scheduler::check_costs(costs, schedule).ok().
/// Deterministic, and independent of the order in which events of one instant are handled.
[[nodiscard]] ir::Timeline simulate(const ir::Schedule& schedule,
                                    const scheduler::CostModel& costs);

}  // namespace xpipe::simulator
