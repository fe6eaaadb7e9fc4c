#include "policies/gpipe.h"

#include <utility>

#include "scheduler/orders.h"
#include "scheduler/plan_builder.h"

namespace xpipe::policies {
namespace {

ir::Result<ir::ComputePlan> plan_gpipe(const scheduler::PlanRequest& request) {
  const std::uint32_t size = request.micro_batches;
  scheduler::PlanBuilder plan(request);
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    for (std::uint32_t i = 0; i < request.mini_batches; ++i) {
      for (std::uint32_t p = 0; p < size; ++p) {
        plan.forward(k, i * size + p, plan.newest(k));
      }
      for (std::uint32_t p = 0; p < size; ++p) {
        plan.backward(k, i * size + p, plan.newest(k));
      }
      plan.step(k, i);
    }
  }
  return std::move(plan).take();
}

scheduler::Promises promise_gpipe(const scheduler::PlanRequest& request) {
  scheduler::Promises promises;
  promises.bubble_numerator = request.stages - 1;
  promises.bubble_denominator = std::uint64_t{request.micro_batches} + request.stages - 1;
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    promises.stages.push_back(
        {.in_flight = scheduler::in_flight_on_replica(request, k, request.micro_batches),
         .versions_held = 1});
  }
  promises.equals_sequential = scheduler::reads_as_sequential(promises.stages);
  return promises;
}

}  // namespace

scheduler::Policy gpipe() {
  scheduler::Policy policy;
  policy.name = "gpipe";
  policy.summary = "all forwards, all backwards, one step; drains after every mini-batch";
  policy.source = "GPipe (Huang et al., NeurIPS'19), section 2.3";
  policy.promise_text = {.bubble = "(D-1)/(T+D-1)",
                         .in_flight = "T",
                         .versions_held = "1",
                         .staleness = "0",
                         .prediction = "none; equals sequential training"};
  policy.plan = &plan_gpipe;
  policy.promises = &promise_gpipe;
  return policy;
}

}  // namespace xpipe::policies
