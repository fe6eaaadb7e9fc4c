// The communication pass: a compute lane per device, a send and a receive lane
// per direction that is used, and for every tensor that crosses devices the
// chain
//
//   producer --edge--> SEND --edge--> RECV --edge--> consumer
//
// Tasks that stages or replicas do together (scheduler/exchange_pass.h) get the edges that they
// wait for each other by. Messages stand in the order in which their producers do, on both ends;
// tensors between stages of one device need no message, the device's order is
// enough.
#pragma once

#include "ir/compute_plan.h"
#include "ir/schedule.h"
#include "scheduler/stage_graph.h"
#include "scheduler/weights_pass.h"

namespace xpipe::scheduler {

/// Fills tasks, lanes and edges of a schedule whose sizes and stages stand
/// already. Requires: `compute` made from a plan of the same sizes.
void add_lanes_and_communication(const ComputeLanes& compute,
                                 const StageGraph& graph,
                                 ir::Schedule& schedule);

}  // namespace xpipe::scheduler
