// policy -> passes -> validated schedule. The passes are shared by all policies, in this order:
//   accumulation   (scheduler/accumulation_pass.h)   steps for several mini-batches
//   exchange       (scheduler/exchange_pass.h)       sums of tied weights, clips
//   placement      (scheduler/placement_pass.h)      the stages' orders, merged by device
//   recompute      (scheduler/recompute_pass.h)      forwards run again before their backwards
//   weights        (scheduler/weights_pass.h)        slots; predict, stash and release tasks
//   communication  (scheduler/communication_pass.h)  sends, receives, their lanes and edges
//   sends          (scheduler/sends_pass.h)          what senders and receivers wait for
// Pure: the same request gives the same schedule, whatever the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/compute_plan.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "scheduler/layout.h"
#include "scheduler/policy.h"
#include "scheduler/recompute_pass.h"
#include "scheduler/sends_pass.h"
#include "scheduler/stage_graph.h"

namespace xpipe::scheduler {

/// What the passes do beyond what every schedule needs.
struct Passes {
  /// Absent: each stage and replica on a device of its own. Its replicas are those of the request.
  std::optional<Layout> layout;
  Recompute recompute = Recompute::None;
  Sends sends = Sends::Eager;
  /// Mini-batches a step: their gradients are accumulated. 1 or more.
  std::uint32_t accumulate = 1;
  /// The largest norm of the gradients of all stages together; they are scaled down to it.
  std::optional<double> clip_norm;

  bool operator==(const Passes&) const = default;
};

/// `request.options` may be incomplete. For a policy whose unit is the whole mini-batch, T is 1.
/// Errors: Usage for sizes or options that cannot be, and for clips, tied weights and accumulation
/// with a policy that does not train as sequential training does at these sizes; Illegal for sends
/// that wait for each other; Internal if the result is not legal for another reason.
[[nodiscard]] ir::Result<ir::Schedule> compile(const Policy& policy,
                                               const PlanRequest& request,
                                               const StageGraph& graph,
                                               const Passes& passes = {});

/// Weights and communication for a plan that is already there. `name` and `options` are written
/// into the schedule. Errors: Illegal when the plan asks for weights that cannot be had.
[[nodiscard]] ir::Result<ir::Schedule> compile_plan(const ir::ComputePlan& plan,
                                                    const StageGraph& graph,
                                                    const std::string& name,
                                                    const Options& options);

}  // namespace xpipe::scheduler
