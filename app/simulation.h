// One simulated run with all its answers, and how a list of them is shown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/run_summary.h"
#include "app/simulate_arguments.h"
#include "app/what_if.h"
#include "app/workload.h"

#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/timeline.h"
#include "scheduler/cost_model.h"
#include "scheduler/policy.h"
#include "simulator/critical_path.h"
#include "simulator/memory.h"
#include "simulator/metrics.h"
#include "simulator/staleness.h"
#include "traces/chrome_trace.h"

namespace xpipe::app {

struct Simulation {
  ir::Schedule schedule;
  scheduler::CostModel costs;
  ir::Timeline timeline;
  RunSummary summary;
  simulator::Metrics metrics;
  std::vector<simulator::StageStaleness> staleness;
  std::vector<std::uint32_t> in_flight;
  std::vector<simulator::DeviceMemory> memory;
  simulator::CriticalPath critical_path;
  std::optional<WhatIf> what_if;
  std::vector<std::string> notes;
};

struct AnswerOptions {
  std::optional<double> what_if_percent;  ///< what would make it faster, too
  /// Replay only as many mini-batches as it takes to know the rest. Then `timeline`, `schedule` and
  /// the tasks of `critical_path` are those of the mini-batches replayed, and memory has no curve.
  bool extrapolate = true;
};

/// One policy at one T.
[[nodiscard]] ir::Result<Simulation> simulate_policy(const Workload& workload,
                                                     const RunRequest& request,
                                                     const AnswerOptions& options);

/// A schedule that is there already; it has one length, so no steady state is looked for.
[[nodiscard]] ir::Result<Simulation> simulate_schedule(const Workload& workload,
                                                       ir::Schedule schedule,
                                                       scheduler::Extrapolation extrapolation,
                                                       const AnswerOptions& options);

/// For people: one row a run, then the notes, each once.
[[nodiscard]] std::string to_table(const Workload& workload, const std::vector<Simulation>& runs);

/// `"format": "xpipe.simulation"`; the keys are docs/formats.md's. With `memory_over_time` the
/// whole curve of each device, too.
[[nodiscard]] std::string to_json(const Workload& workload,
                                  const std::vector<Simulation>& runs,
                                  bool memory_over_time);

/// Memory over time by device, for a trace.
[[nodiscard]] std::vector<traces::CounterSeries> memory_counters(
    const std::vector<simulator::DeviceMemory>& memory);

/// The trace of one run, with counters for memory, weight versions and staleness.
[[nodiscard]] ir::Result<std::string> trace_of(const Workload& workload, const Simulation& run);

}  // namespace xpipe::app
