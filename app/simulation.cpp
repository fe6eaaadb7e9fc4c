#include "app/simulation.h"

#include <algorithm>
#include <utility>

#include "app/compiled_run.h"
#include "app/what_if.h"
#include <fmt/format.h>

#include "simulator/extrapolate.h"
#include "simulator/memory_limit.h"
#include "traces/weight_counters.h"

namespace xpipe::app {

namespace {

/// The critical path of all mini-batches: its tasks are the base's, its times grow period by
/// period.
simulator::CriticalPath path_of(const simulator::LongRun& run, const scheduler::CostModel& costs) {
  simulator::CriticalPath path =
      simulator::critical_path(run.base.schedule, run.base.timeline, costs);
  if (run.longer.has_value()) {
    const simulator::CriticalPath longer =
        simulator::critical_path(run.longer->schedule, run.longer->timeline, costs);
    for (std::size_t kind = 0; kind < ir::kTaskKinds; ++kind) {
      path.by_kind[kind] = run.extrapolated(path.by_kind[kind], longer.by_kind[kind]);
    }
    path.latency = run.extrapolated(path.latency, longer.latency);
  }
  return path;
}

std::vector<simulator::DeviceMemory> memory_of(const simulator::LongRun& run,
                                               const scheduler::CostModel& costs) {
  std::vector<simulator::DeviceMemory> memory =
      simulator::memory_over_time(run.base.schedule, run.base.timeline, costs);
  return run.longer.has_value()
             ? simulator::extrapolated(
                   memory,
                   simulator::memory_over_time(run.longer->schedule, run.longer->timeline, costs),
                   run.repeats)
             : memory;
}

/// Replays, all of it where staleness has not settled within what extrapolation needs.
ir::Result<simulator::LongRun> replay_settled(CompiledRun& compiled,
                                              const scheduler::CostModel& costs,
                                              bool extrapolate) {
  ir::Result<simulator::LongRun> run = compiled.replay(costs, extrapolate);
  if (!run.ok() || !run.value().longer.has_value() ||
      simulator::is_settled(simulator::measure_staleness(run.value().base.schedule),
                            simulator::measure_staleness(run.value().longer->schedule))) {
    return run;
  }
  return compiled.replay(costs, false);
}

/// Replays, and fills in everything that follows. The policy's own facts are the caller's.
ir::Result<Simulation> answer(const Workload& workload,
                              CompiledRun compiled,
                              scheduler::CostModel costs,
                              const ModelOf& model_of,
                              std::uint32_t asked_micro_batches,
                              const AnswerOptions& options) {
  if (options.what_if_percent.has_value()) {
    compiled.keep_all();
  }
  ir::Result<simulator::LongRun> replayed = replay_settled(compiled, costs, options.extrapolate);
  if (!replayed.ok()) {
    return replayed.error();
  }
  simulator::LongRun& long_run = replayed.value();
  Simulation run;
  run.costs = std::move(costs);
  run.metrics = measure_run(long_run);
  run.staleness = simulator::measure_staleness(long_run.base.schedule);
  run.in_flight = simulator::peak_in_flight(long_run.base.schedule);
  run.memory = memory_of(long_run, run.costs);
  if (ir::Status fits = simulator::check_memory(long_run.base.schedule, run.memory,
                                                simulator::memory_limits(workload.cluster));
      !fits.ok()) {
    return fits.error();
  }
  run.critical_path = path_of(long_run, run.costs);
  run.notes = run.costs.notes;
  ir::Bytes peak_memory = 0;
  for (const simulator::DeviceMemory& device : run.memory) {
    peak_memory = std::max(peak_memory, device.peak);
  }
  run.summary = summarize(workload, long_run, asked_micro_batches, run.metrics, peak_memory,
                          summarize(run.staleness));
  if (long_run.note) {
    run.notes.push_back(*long_run.note);
  }
  if (run.summary.replayed_mini_batches < run.summary.mini_batches) {
    run.notes.push_back(fmt::format(
        "{} mini-batches are replayed, the figures of {} follow exactly: the state repeats "
        "(--replay-all replays them all)",
        run.summary.replayed_mini_batches, run.summary.mini_batches));
  }
  if (options.what_if_percent.has_value()) {
    ir::Result<WhatIf> answers = what_if(compiled,
                                         {.workload = workload,
                                          .model_of = model_of,
                                          .costs = run.costs,
                                          .schedule = long_run.base.schedule,
                                          .path = run.critical_path,
                                          .makespan = run.metrics.makespan,
                                          .steady = long_run.steady,
                                          .extrapolate = options.extrapolate},
                                         *options.what_if_percent);
    if (!answers.ok()) {
      return answers.error();
    }
    run.what_if = std::move(answers).value();
  }
  run.schedule = std::move(long_run.base.schedule);
  run.timeline = std::move(long_run.base.timeline);
  return run;
}

}  // namespace

ir::Result<Simulation> simulate_policy(const Workload& workload,
                                       const RunRequest& request,
                                       const AnswerOptions& options) {
  const scheduler::Policy& policy = *request.policy;
  const ModelOf model_of = [&request, &policy](const Workload& changed) {
    return staged_model(
        changed, request.micro_batches,
        {.whole_mini_batch = policy.whole_mini_batch, .extrapolation = policy.extrapolation});
  };
  ir::Result<scheduler::StagedModel> model = model_of(workload);
  if (!model.ok()) {
    return model.error();
  }
  CompiledRun compiled(request, model.value().graph, workload.passes);
  ir::Result<Simulation> run = answer(workload, std::move(compiled), std::move(model.value().costs),
                                      model_of, request.micro_batches, options);
  if (!run.ok()) {
    return run;
  }
  if (run.value().summary.steady.note) {
    run.value().notes.push_back(fmt::format("{}, T = {}: {}", policy.name, request.micro_batches,
                                            *run.value().summary.steady.note));
  }
  if (policy.whole_mini_batch && request.micro_batches > 1) {
    run.value().notes.push_back(fmt::format(
        "{} works on whole mini-batches: it runs with T = 1 at the same mini-batch size (in "
        "brackets: the T asked for)",
        policy.name));
  }
  return run;
}

ir::Result<Simulation> simulate_schedule(const Workload& workload,
                                         ir::Schedule schedule,
                                         scheduler::Extrapolation extrapolation,
                                         const AnswerOptions& options) {
  const std::uint32_t micro_batches = schedule.micro_batches;
  const ModelOf model_of = [micro_batches, extrapolation](const Workload& changed) {
    return staged_model(changed, micro_batches, {.extrapolation = extrapolation});
  };
  ir::Result<scheduler::StagedModel> model = model_of(workload);
  if (!model.ok()) {
    return model.error();
  }
  ir::Result<Simulation> run =
      answer(workload, CompiledRun(std::move(schedule)), std::move(model).value().costs, model_of,
             micro_batches, options);
  if (run.ok()) {
    run.value().notes.push_back(*run.value().summary.steady.note);
  }
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
  info.title =
      fmt::format("{}: {}, {} stages, T = {}", run.timeline.measured ? "emulated run" : "plan",
                  run.schedule.policy, run.schedule.stages.size(), run.schedule.micro_batches);
  info.facts = {{"model", workload.profile.name},
                {"profile", workload.profile.provenance},
                {"batch_size", std::to_string(run.summary.samples_per_mini_batch)}};
  info.layers = workload.layers_by_stage();
  std::vector<traces::CounterSeries> counters = memory_counters(run.memory);
  for (traces::CounterSeries& series : traces::weight_counters(run.schedule, run.timeline)) {
    counters.push_back(std::move(series));
  }
  return traces::chrome_trace(run.schedule, run.timeline, info, counters);
}

}  // namespace xpipe::app
