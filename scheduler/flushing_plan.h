// The plan of a synchronous pipeline, which drains after every mini-batch: a stage runs the passes
// of one mini-batch in some order, steps, and goes on to the next. All passes read the newest
// weights, so that a flushing policy is an order and how many micro-batches it holds.
//
// Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/compute_plan.h"
#include "ir/status.h"
#include "scheduler/orders.h"
#include "scheduler/policy.h"

namespace xpipe::scheduler {

/// The passes of `micro_batches`, those of one mini-batch, on stage `stage` of `stages`.
using StageOrder = std::vector<PassOf> (*)(std::uint32_t stages,
                                           std::uint32_t stage,
                                           std::uint32_t micro_batches);

[[nodiscard]] ir::Result<ir::ComputePlan> flushing_plan(const PlanRequest& request,
                                                        StageOrder order);

/// Of such a plan whose backwards are in the order of its forwards: the bubble of D - 1 of
/// T + D - 1 places, one version, sequential training. `admitted`: micro-batches in flight at most,
/// by stage, over all its replicas.
[[nodiscard]] Promises flushing_promises(const PlanRequest& request,
                                         const std::vector<std::uint32_t>& admitted);

}  // namespace xpipe::scheduler
