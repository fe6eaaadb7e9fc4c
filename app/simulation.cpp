#include "app/simulation.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "scheduler/compile.h"
#include "simulator/simulate.h"
#include "traces/weight_counters.h"

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

/// Fills in everything that follows from schedule, costs and timeline.
void measure(Simulation& run) {
  run.metrics = simulator::measure(run.schedule, run.timeline);
  run.staleness = simulator::measure_staleness(run.schedule);
  run.in_flight = simulator::peak_in_flight(run.schedule);
  run.memory = simulator::memory_over_time(run.schedule, run.timeline, run.costs);
  run.critical_path = simulator::critical_path(run.schedule, run.timeline, run.costs);
  run.notes.insert(run.notes.begin(), run.costs.notes.begin(), run.costs.notes.end());
  const double samples = run.samples_per_mini_batch;
  run.samples_per_s =
      run.steady.found()
          ? simulator::samples_per_second(samples * run.steady.period, run.steady.period_ns)
          : simulator::samples_per_second(samples * run.schedule.mini_batches,
                                          run.metrics.makespan);
}

}  // namespace

ir::Result<Simulation> simulate_policy(const Workload& workload, const RunRequest& request) {
  const scheduler::Policy& policy = *request.policy;
  const std::uint32_t micro_batches = request.micro_batches;
  const std::uint32_t mini_batches = request.mini_batches;
  ir::Result<scheduler::StagedModel> model = staged_model(
      workload, micro_batches,
      {.whole_mini_batch = policy.whole_mini_batch, .extrapolation = policy.extrapolation});
  if (!model.ok()) {
    return model.error();
  }
  const scheduler::StageGraph& graph = model.value().graph;
  const auto compiled = [&](std::uint32_t n) {
    return scheduler::compile(policy,
                              {.stages = workload.stages,
                               .micro_batches = micro_batches,
                               .mini_batches = n,
                               .options = request.options},
                              graph);
  };
  ir::Result<ir::Schedule> schedule = compiled(mini_batches);
  if (!schedule.ok()) {
    return schedule.error();
  }
  Simulation run;
  run.schedule = std::move(schedule).value();
  run.costs = std::move(model).value().costs;
  if (ir::Status priced = scheduler::check_costs(run.costs, run.schedule); !priced.ok()) {
    return priced.error();
  }
  run.asked_micro_batches = micro_batches;
  run.samples_per_mini_batch = workload.samples_per_mini_batch(micro_batches);
  run.timeline = simulator::simulate(run.schedule, run.costs);
  ir::Result<simulator::SteadyState> steady = simulator::steady_state(
      {.mini_batches = mini_batches, .longest_period = longest_period(run.schedule)},
      [&](std::uint32_t n) -> ir::Result<ir::Nanos> {
        const ir::Result<ir::Schedule> longer = compiled(n);
        if (!longer.ok()) {
          return longer.error();
        }
        if (ir::Status priced = scheduler::check_costs(run.costs, longer.value()); !priced.ok()) {
          return priced.error();
        }
        return ir::makespan(simulator::simulate(longer.value(), run.costs));
      });
  if (!steady.ok()) {
    return steady.error();
  }
  run.steady = std::move(steady).value();
  if (run.steady.note) {
    run.notes.push_back(
        fmt::format("{}, T = {}: {}", policy.name, micro_batches, *run.steady.note));
  }
  if (policy.whole_mini_batch && micro_batches > 1) {
    run.notes.push_back(fmt::format(
        "{} works on whole mini-batches: it runs with T = 1 at the same mini-batch size",
        policy.name));
  }
  measure(run);
  return run;
}

ir::Result<Simulation> simulate_schedule(const Workload& workload,
                                         ir::Schedule schedule,
                                         scheduler::Extrapolation extrapolation) {
  const std::uint32_t micro_batches = schedule.micro_batches;
  ir::Result<scheduler::StagedModel> model =
      staged_model(workload, micro_batches, {.extrapolation = extrapolation});
  if (!model.ok()) {
    return model.error();
  }
  Simulation run;
  run.schedule = std::move(schedule);
  run.costs = std::move(model).value().costs;
  if (ir::Status priced = scheduler::check_costs(run.costs, run.schedule); !priced.ok()) {
    return priced.error();
  }
  run.asked_micro_batches = micro_batches;
  run.samples_per_mini_batch = workload.samples_per_mini_batch(micro_batches);
  run.timeline = simulator::simulate(run.schedule, run.costs);
  run.steady.note = "a schedule from a file has one length, so no steady state is looked for";
  run.notes.push_back(*run.steady.note);
  measure(run);
  return run;
}

std::vector<traces::CounterSeries> memory_counters(
    const std::vector<simulator::DeviceMemory>& memory) {
  std::vector<traces::CounterSeries> series;
  for (std::size_t d = 0; d < memory.size(); ++d) {
    for (std::size_t kind = 0; kind < simulator::kMemoryKinds; ++kind) {
      traces::CounterSeries counter;
      counter.name = fmt::format(
          "memory {}", simulator::memory_kind_name(static_cast<simulator::MemoryKind>(kind)));
      counter.unit = "bytes";
      counter.device = ir::DeviceId{static_cast<std::uint16_t>(d)};
      const auto& curve = memory[d].curve;
      counter.base = curve.empty() ? 0 : curve.front().bytes[kind];
      for (const simulator::MemoryPoint& point : curve) {
        const std::int64_t last =
            counter.points.empty() ? counter.base : counter.points.back().second;
        if (point.bytes[kind] != last) {
          counter.points.emplace_back(point.time, point.bytes[kind]);
        }
      }
      if (counter.base != 0 || !counter.points.empty()) {
        series.push_back(std::move(counter));
      }
    }
  }
  return series;
}

ir::Result<std::string> trace_of(const Workload& workload, const Simulation& run) {
  traces::TraceInfo info;
  info.title = fmt::format("plan: {}, {} stages, T = {}", run.schedule.policy,
                           run.schedule.stages.size(), run.schedule.micro_batches);
  info.facts = {{"model", workload.profile.name},
                {"profile", workload.profile.provenance},
                {"batch_size", std::to_string(run.samples_per_mini_batch)}};
  info.layers = workload.layers_by_stage();
  std::vector<traces::CounterSeries> counters = memory_counters(run.memory);
  for (traces::CounterSeries& series : traces::weight_counters(run.schedule, run.timeline)) {
    counters.push_back(std::move(series));
  }
  return traces::chrome_trace(run.schedule, run.timeline, info, counters);
}

}  // namespace xpipe::app
