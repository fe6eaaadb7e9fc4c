#include "scheduler/flushing_plan.h"

#include <utility>

#include "scheduler/plan_builder.h"

namespace xpipe::scheduler {

ir::Result<ir::ComputePlan> flushing_plan(const PlanRequest& request, StageOrder order) {
  const std::uint32_t size = request.micro_batches;
  PlanBuilder plan(request);
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    const std::vector<PassOf> passes = order(request.stages, k, size);
    for (std::uint32_t i = 0; i < request.mini_batches; ++i) {
      for (const auto& [pass, j] : passes) {
        if (pass == ir::Pass::Forward) {
          plan.forward(k, i * size + j, plan.newest(k));
        } else {
          plan.backward(k, i * size + j, plan.newest(k));
        }
      }
      plan.step(k, i);
    }
  }
  return std::move(plan).take();
}

Promises flushing_promises(const PlanRequest& request, const std::vector<std::uint32_t>& admitted) {
  Promises promises;
  promises.bubble_numerator = request.stages - 1;
  promises.bubble_denominator = std::uint64_t{request.micro_batches} + request.stages - 1;
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    promises.stages.push_back(
        {.in_flight = in_flight_on_replica(request, k, admitted[k]), .versions_held = 1});
  }
  promises.equals_sequential = reads_as_sequential(promises.stages);
  return promises;
}

}  // namespace xpipe::scheduler
