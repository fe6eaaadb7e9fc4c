#include "executor/cpu/emulated_backend.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "executor/cpu/emulated_run.h"

namespace xpipe::executor {

EmulatedBackend::EmulatedBackend(CpuPool& pool,
                                 scheduler::CostModel costs,
                                 std::chrono::nanoseconds time_out)
    : CpuBackend(pool, {.time_out = time_out, .spin = std::nullopt}),
      costs_(std::make_shared<const scheduler::CostModel>(std::move(costs))) {}

ir::Status EmulatedBackend::begin(const ir::Schedule& schedule) {
  if (ir::Status priced = scheduler::check_costs(*costs_, schedule); !priced.ok()) {
    return priced;
  }
  longest_ = 0;
  for (const ir::Task& task : schedule.tasks) {
    longest_ = std::max(longest_, scheduler::duration(*costs_, schedule, task));
  }
  for (const scheduler::LinkCosts& link : costs_->links) {
    longest_ = std::max(longest_, link.spec.latency);
  }
  return CpuBackend::begin(schedule);
}

std::shared_ptr<CpuRun> EmulatedBackend::make_run(const ir::Schedule& schedule,
                                                  std::shared_ptr<StopState> state) const {
  return std::make_shared<EmulatedRun>(schedule, costs_, std::move(state));
}

std::chrono::nanoseconds EmulatedBackend::time_out() const {
  const ir::Nanos most = std::numeric_limits<ir::Nanos>::max();
  const ir::Nanos own = CpuBackend::time_out().count();
  return std::chrono::nanoseconds(own > most - longest_ ? most : own + longest_);
}

}  // namespace xpipe::executor
