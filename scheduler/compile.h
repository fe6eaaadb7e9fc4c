// policy -> passes -> validated schedule. The passes are shared by all
// policies:
//   weights        (scheduler/weights_pass.h)        slots; predict, stash and
//   release tasks communication  (scheduler/communication_pass.h)  sends,
//   receives, their lanes and edges
// Pure: the same request gives the same schedule, whatever the machine.
#pragma once

#include <string>

#include "ir/compute_plan.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "scheduler/policy.h"
#include "scheduler/stage_graph.h"

namespace xpipe::scheduler {

/// `request.options` may be incomplete. For a policy whose unit is the whole
/// mini-batch, T is 1. Errors: Usage for sizes or options that cannot be;
/// Internal if the result is not legal.
[[nodiscard]] ir::Result<ir::Schedule> compile(const Policy& policy,
                                               const PlanRequest& request,
                                               const StageGraph& graph);

/// The same for a plan that is already there. `name` and `options` are written
/// into the schedule. Errors: Illegal when the plan asks for weights that
/// cannot be had.
[[nodiscard]] ir::Result<ir::Schedule> compile_plan(const ir::ComputePlan& plan,
                                                    const StageGraph& graph,
                                                    const std::string& name,
                                                    const Options& options);

}  // namespace xpipe::scheduler
