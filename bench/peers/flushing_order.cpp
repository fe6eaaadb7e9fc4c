#include "bench/peers/flushing_order.h"

#include <cstdint>
#include <utility>

#include "scheduler/orders.h"
#include "scheduler/plan_builder.h"

namespace xpipe::bench {

namespace {

ir::Result<ir::ComputePlan> plan_flushing(const scheduler::PlanRequest& request) {
  const std::uint32_t size = request.micro_batches;
  scheduler::PlanBuilder plan(request);
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    for (std::uint32_t i = 0; i < request.mini_batches; ++i) {
      for (const auto& [pass, j] : scheduler::one_f_one_b(request.stages, k, size)) {
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

scheduler::Promises promise_flushing(const scheduler::PlanRequest& request) {
  scheduler::Promises promises;
  promises.bubble_numerator = request.stages - 1;
  promises.bubble_denominator = std::uint64_t{request.micro_batches} + request.stages - 1;
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    promises.stages.push_back(
        {.in_flight = scheduler::one_f_one_b_warm_up(request.stages, k, request.micro_batches),
         .versions_held = 1});
  }
  promises.equals_sequential = true;
  return promises;
}

}  // namespace

scheduler::Policy one_f_one_b_flush() {
  scheduler::Policy policy;
  policy.name = "1f1b";
  policy.summary = "one forward, one backward; drains after every mini-batch";
  policy.source = "DAPPLE (PPoPP'21); PipeDream-Flush (ICML'21)";
  policy.plan = &plan_flushing;
  policy.promises = &promise_flushing;
  return policy;
}

}  // namespace xpipe::bench
