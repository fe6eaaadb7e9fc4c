#include "policies/gpipe.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/flushing_plan.h"

namespace xpipe::policies {
namespace {

std::vector<scheduler::PassOf> forwards_first(std::uint32_t /*stages*/,
                                              std::uint32_t /*stage*/,
                                              std::uint32_t micro_batches) {
  std::vector<scheduler::PassOf> order;
  order.reserve(2 * static_cast<std::size_t>(micro_batches));
  for (const ir::Pass pass : {ir::Pass::Forward, ir::Pass::Backward}) {
    for (std::uint32_t j = 0; j < micro_batches; ++j) {
      order.push_back({pass, j});
    }
  }
  return order;
}

ir::Result<ir::ComputePlan> plan_gpipe(const scheduler::PlanRequest& request) {
  return scheduler::flushing_plan(request, &forwards_first);
}

scheduler::Promises promise_gpipe(const scheduler::PlanRequest& request) {
  return scheduler::flushing_promises(
      request, std::vector<std::uint32_t>(request.stages, request.micro_batches));
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
