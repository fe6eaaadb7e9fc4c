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
  std::optional<StageCut> cut;        ///< one that is there already; absent: searched for
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
  std::uint32_t staleness = 0;     ///< of a forward's weights, as promised, at most

  [[nodiscard]] bool fits() const { return shortfall == 0; }

  /// Per mini-batch in steady state, else over the whole run.
  [[nodiscard]] double ns_per_mini_batch() const;

  /// Of the fullest device.
  [[nodiscard]] ir::Bytes peak_memory() const;
};

struct PlanOutcome {
  /// The plan first. Of those that fit and are within kAsFast of the fastest it is the one with the
  /// least staleness, then the fewest micro-batches, then the smallest peak memory. The others
  /// follow, the fastest first; then those that do not fit, the nearest miss first.
  std::vector<Candidate> candidates;
  std::vector<std::string> refused;  ///< set-ups that cannot be, each with the reason
};

/// Rates that differ by less are equal: simulations are not as good as that.
inline constexpr double kAsFast = 0.001;

/// Errors: Usage when nothing that was asked for can be; BadInput for links that are missing.
[[nodiscard]] ir::Result<PlanOutcome> search_plans(const Workload& workload,
                                                   const PlanRequest& request);

/// Ts to try for a mini-batch of `samples`: its divisors; where it has fewer than four, the powers
/// of two up to it.
[[nodiscard]] std::vector<std::uint32_t> micro_batches_to_try(std::uint32_t samples);

/// One run with this cut, its stages on devices in order. Requires: mini-batches.
[[nodiscard]] ir::Result<Candidate> simulate_cut(const Workload& workload,
                                                 const RunRequest& run,
                                                 StageCut cut);

}  // namespace xpipe::app
