#include "executor/cpu/emulated_backend.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "executor/cpu/emulated_run.h"

namespace xpipe::executor {

namespace {

/// Costs under which the length of a task follows from what others do meanwhile: real threads would
/// have to change each other's deadlines all the time.
ir::Status check_static(const scheduler::CostModel& costs) {
  ir::Error error{.kind = ir::ErrorKind::Usage, .diagnostics = {}};
  if (costs.sharing == ir::Sharing::MaxMin) {
    error.diagnostics.push_back({"not-emulated", "sharing",
                                 "links shared by max-min fairness cannot be emulated; use "
                                 "\"first-come\", or simulate"});
  }
  if (std::ranges::any_of(costs.overlap_slowdown, [](double factor) { return factor > 1.0; })) {
    error.diagnostics.push_back({"not-emulated", "overlap_slowdown",
                                 "compute that transfers slow down cannot be emulated; drop the "
                                 "key, or simulate"});
  }
  return error.diagnostics.empty() ? ir::Status() : ir::Status(std::move(error));
}

}  // namespace

EmulatedBackend::EmulatedBackend(CpuPool& pool,
                                 scheduler::CostModel costs,
                                 std::chrono::nanoseconds time_out)
    : CpuBackend(pool, {.time_out = time_out, .spin = std::nullopt}),
      costs_(std::make_shared<const scheduler::CostModel>(std::move(costs))) {}

ir::Status EmulatedBackend::begin(const ir::Schedule& schedule) {
  if (ir::Status priced = scheduler::check_costs(*costs_, schedule); !priced.ok()) {
    return priced;
  }
  if (ir::Status fixed = check_static(*costs_); !fixed.ok()) {
    return fixed;
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
