#include "app/compiled_run.h"

#include <algorithm>
#include <utility>

#include "simulator/simulate.h"

namespace xpipe::app {

namespace {

/// Tasks that the search for a steady state may replay in all; bounds its time to seconds.
constexpr std::uint64_t kSteadyTasks = 20'000'000;

/// The longest period to look for, so that 2 p + 1 segments of the search stay within
/// kSteadyTasks. The default where that is possible, never less than 8.
std::uint32_t longest_period(const ir::Schedule& schedule) {
  const std::uint64_t per_mini_batch = schedule.tasks.size() / schedule.mini_batches + 1;
  const auto stages = static_cast<std::uint32_t>(schedule.stages.size());
  std::uint32_t period = simulator::default_longest_period(stages);
  const auto replayed = [&](std::uint64_t p) {
    const std::uint64_t start = std::min(schedule.mini_batches, simulator::kLatestStart);
    return (2 * p + 1) * (start + 2 * p + 1) * per_mini_batch;
  };
  while (period > 8 && replayed(period) > kSteadyTasks) {
    period = std::max<std::uint32_t>(8, period / 2);
  }
  return period;
}

ir::Result<ir::Schedule> compile_length(const RunRequest& request,
                                        const scheduler::StageGraph& graph,
                                        const scheduler::Passes& passes,
                                        std::uint32_t mini_batches) {
  return scheduler::compile(*request.policy,
                            {.stages = graph.stages,
                             .micro_batches = request.micro_batches,
                             .mini_batches = mini_batches,
                             .options = request.options},
                            graph, passes);
}

}  // namespace

ir::Result<CompiledRun> CompiledRun::compile(const RunRequest& request,
                                             const scheduler::StageGraph& graph,
                                             const scheduler::Passes& passes) {
  ir::Result<ir::Schedule> schedule = compile_length(request, graph, passes, request.mini_batches);
  if (!schedule.ok()) {
    return schedule.error();
  }
  CompiledRun run(std::move(schedule).value());
  run.request_ = request;
  run.graph_ = graph;
  run.passes_ = passes;
  return run;
}

bool CompiledRun::is_of(const RunRequest& request,
                        const scheduler::StageGraph& graph,
                        const scheduler::Passes& passes) const {
  return request_ == request && graph_.stages == graph.stages && graph_.links == graph.links &&
         passes_ == passes;
}

ir::Result<ir::Nanos> CompiledRun::makespan_of(std::uint32_t mini_batches,
                                               const scheduler::CostModel& costs) {
  auto found = longer_.find(mini_batches);
  if (found == longer_.end()) {
    ir::Result<ir::Schedule> compiled = compile_length(*request_, graph_, passes_, mini_batches);
    if (!compiled.ok()) {
      return compiled.error();
    }
    found = longer_.emplace(mini_batches, std::move(compiled).value()).first;
  }
  const ir::Status priced = scheduler::check_costs(costs, found->second);
  const ir::Nanos makespan =
      priced.ok() ? ir::makespan(simulator::simulate(found->second, costs)) : 0;
  if (!keeps_) {
    longer_.erase(found);
  }
  if (!priced.ok()) {
    return priced.error();
  }
  return makespan;
}

ir::Result<Replayed> CompiledRun::replay(const scheduler::CostModel& costs) {
  if (ir::Status priced = scheduler::check_costs(costs, schedule_); !priced.ok()) {
    return priced.error();
  }
  Replayed replayed;
  replayed.timeline = simulator::simulate(schedule_, costs);
  if (!request_.has_value()) {
    replayed.steady.note =
        "a schedule from a file has one length, so no steady state is looked for";
    return replayed;
  }
  ir::Result<simulator::SteadyState> steady = simulator::steady_state(
      {.mini_batches = schedule_.mini_batches, .longest_period = longest_period(schedule_)},
      [&](std::uint32_t n) { return makespan_of(n, costs); });
  if (!steady.ok()) {
    return steady.error();
  }
  replayed.steady = std::move(steady).value();
  return replayed;
}

}  // namespace xpipe::app
