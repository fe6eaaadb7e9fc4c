// Long runs: from as many mini-batches as it takes to prove that the replay repeats itself, the
// figures of any number of them, to the nanosecond.
//
//   N = base + repeats * period          figure(N) = figure(base)
//   |prefix|period|     suffix|  base                + repeats * (figure(longer) - figure(base))
//   |prefix|period|period|suffix|  longer
//
// What is proven: on the compiled segments, that two borders have one state (border_state.h), and
// that the segment one period longer is the same with the period once more. What is assumed: that
// the policy goes on as it did, one period after the other. Where no state repeats, all is
// replayed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "scheduler/cost_model.h"
#include "simulator/border_state.h"
#include "simulator/steady_state.h"

namespace xpipe::simulator {

/// The schedule of this many mini-batches, legal and priced by the costs of the run.
using CompileSegment = std::function<ir::Result<ir::Schedule>(std::uint32_t mini_batches)>;

struct LongRunRequest {
  std::uint32_t mini_batches = 8;  ///< N; > 0
  bool extrapolate = true;         ///< false: replay all N, whatever repeats
  bool find_steady_state = true;   ///< else only what extrapolation needs; `steady` stays empty
  std::uint64_t most_tasks = 20'000'000;  ///< that the search may compile and replay in all
};

struct LongRun {
  ReplayedSegment base;                   ///< all N mini-batches where repeats == 0
  std::optional<ReplayedSegment> longer;  ///< one period more; only where repeats > 0
  std::uint64_t repeats = 0;              ///< how many periods N is longer than base
  SteadyState steady;
  std::optional<std::string> note;  ///< that a long run is replayed in full, and why

  /// A figure of N mini-batches that grows by the same amount with every period: times at the end,
  /// sums over tasks.
  [[nodiscard]] std::int64_t extrapolated(std::int64_t of_base, std::int64_t of_longer) const {
    return of_base + static_cast<std::int64_t>(repeats) * (of_longer - of_base);
  }
};

/// Errors: those of `compile`; Illegal when a replay ends in a deadlock; Usage when nothing repeats
/// and N mini-batches are too many to replay (kMostTasksInFull).
[[nodiscard]] ir::Result<LongRun> replay_long_run(const LongRunRequest& request,
                                                  const scheduler::CostModel& costs,
                                                  const CompileSegment& compile);

/// About 10 GB of schedule and timeline.
inline constexpr std::uint64_t kMostTasksInFull = 100'000'000;

}  // namespace xpipe::simulator
