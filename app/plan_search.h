// The search of `xpipe plan`: every policy, T and number of stages that is asked for is cut as well
// as can be (app/plan_cuts.h), simulated, and held against the devices' memory. What the cut's
// formulas leave out, waiting, drains, buffers and contention, the simulation has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/plan_cuts.h"
#include "app/simulate_arguments.h"
#include "app/workload.h"

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "scheduler/cost_model.h"
#include "simulator/memory.h"
#include "simulator/metrics.h"
#include "simulator/steady_state.h"

namespace xpipe::app {

struct PlanRequest {
  std::vector<RunRequest> runs;  ///< policies and Ts; mini-batches of 0: enough for a steady state
  std::vector<std::uint32_t> stages;  ///< to try
  scheduler::Partition partition;     ///< by hand; empty: searched for
  Search search = Search::Order;
  std::optional<scheduler::PipedreamRequest> pipedream;  ///< for Search::Pipedream
};

/// What a device holds at its peak.
struct PeakMemory {
  ir::Bytes bytes = 0;
  ir::Nanos time = 0;
  simulator::MemoryBytes by_kind{};
  std::optional<ir::Bytes> limit;

  [[nodiscard]] ir::Bytes shortfall() const { return limit && bytes > *limit ? bytes - *limit : 0; }
};

/// One policy at one T on one number of stages, simulated.
struct Candidate {
  RunRequest run;
  Workload workload;  ///< with its cut
  StageCut cut;
  std::uint32_t micro_batches = 1;  ///< 1 for policies of whole mini-batches
  scheduler::StagedModel model;
  simulator::SteadyState steady;
  simulator::Metrics metrics;
  std::optional<double> samples_per_s;
  std::vector<PeakMemory> memory;  ///< by device
  ir::Bytes shortfall = 0;         ///< of the device that lacks the most

  [[nodiscard]] bool fits() const { return shortfall == 0; }

  /// Per mini-batch in steady state, else over the whole run.
  [[nodiscard]] double ns_per_mini_batch() const;
};

struct PlanOutcome {
  /// Those that fit come first, the fastest first; then those that do not, the nearest miss first.
  /// Of equals that with the smaller peak memory, then in the order in which they were tried.
  std::vector<Candidate> candidates;
  std::vector<std::string> refused;  ///< set-ups that cannot be, each with the reason
};

/// Errors: Usage when nothing that was asked for can be; BadInput for links that are missing.
[[nodiscard]] ir::Result<PlanOutcome> search_plans(const Workload& workload,
                                                   const PlanRequest& request);

/// Ts to try for a mini-batch of `samples`: its divisors; where it has fewer than four, the powers
/// of two up to it.
[[nodiscard]] std::vector<std::uint32_t> micro_batches_to_try(std::uint32_t samples);

/// Cuts as `request.partition` says and simulates; `limits` by device.
[[nodiscard]] ir::Result<Candidate> simulate_cut(const Workload& workload,
                                                 const RunRequest& run,
                                                 StageCut cut);

}  // namespace xpipe::app
