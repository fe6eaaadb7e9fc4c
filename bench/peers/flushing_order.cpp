#include "bench/peers/flushing_order.h"

#include <cstdint>
#include <vector>

#include "scheduler/flushing_plan.h"
#include "scheduler/orders.h"

namespace xpipe::bench {

namespace {

ir::Result<ir::ComputePlan> plan_flushing(const scheduler::PlanRequest& request) {
  return scheduler::flushing_plan(request, &scheduler::one_f_one_b);
}

scheduler::Promises promise_flushing(const scheduler::PlanRequest& request) {
  std::vector<std::uint32_t> admitted;
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    admitted.push_back(scheduler::one_f_one_b_warm_up(request.stages, k, request.micro_batches));
  }
  return scheduler::flushing_promises(request, admitted);
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
