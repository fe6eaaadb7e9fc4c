// One simulated run with all its answers, and how a list of them is shown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/simulate_arguments.h"
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
#include "simulator/steady_state.h"
#include "traces/chrome_trace.h"

namespace xpipe::app {

struct Simulation {
  ir::Schedule schedule;
  scheduler::CostModel costs;
  ir::Timeline timeline;
  std::uint32_t asked_micro_batches = 1;  ///< differs from the schedule's for whole mini-batches
  std::uint32_t samples_per_mini_batch = 1;
  simulator::Metrics metrics;
  simulator::SteadyState steady;
  std::optional<double> samples_per_s;  ///< in steady state, else over the whole run
  std::vector<simulator::StageStaleness> staleness;
  std::vector<std::uint32_t> in_flight;
  std::vector<simulator::DeviceMemory> memory;
  simulator::CriticalPath critical_path;
  std::vector<std::string> notes;
};

/// One policy at one T.
[[nodiscard]] ir::Result<Simulation> simulate_policy(const Workload& workload,
                                                     const RunRequest& request);

/// A schedule that is there already; it has one length, so no steady state is looked for.
[[nodiscard]] ir::Result<Simulation> simulate_schedule(const Workload& workload,
                                                       ir::Schedule schedule,
                                                       scheduler::Extrapolation extrapolation);

/// For people: one row a run, then the notes, each once.
[[nodiscard]] std::string to_table(const Workload& workload, const std::vector<Simulation>& runs);

/// `"format": "xpipe.simulation"`; the keys are docs/formats.md's.
[[nodiscard]] std::string to_json(const Workload& workload, const std::vector<Simulation>& runs);

/// Memory over time by device, for a trace.
[[nodiscard]] std::vector<traces::CounterSeries> memory_counters(
    const std::vector<simulator::DeviceMemory>& memory);

/// The trace of one run, with counters for memory, weight versions and staleness.
[[nodiscard]] ir::Result<std::string> trace_of(const Workload& workload, const Simulation& run);

}  // namespace xpipe::app
