// Steady state: what one more mini-batch costs in the long run. Found from the makespans of longer
// and longer segments, which a function supplies: this file knows no policy.
//
//   d(n) = makespan(n + 1) - makespan(n)
//   f/b = 1/2 ms, latency 1 ms, D = 4, T = 1:   3, 5, 5, 5, 3, 5, 5, 5, ... ms   period 4, 4.5 ms
//
// Equal neighbours prove nothing (5, 5, 5 above). A period p is believed when all differences of a
// window repeat with it, the window being twice as long as the longest period looked for: every p
// is then seen at least twice, a short one many times. Differences of a pipeline repeat with the
// number of micro-batches in flight on its slowest loop, so `longest_period` should be at least the
// number of stages.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "ir/ids.h"
#include "ir/status.h"

namespace xpipe::simulator {

/// The makespan of a segment of this many mini-batches.
using MakespanOf = std::function<ir::Result<ir::Nanos>(std::uint32_t mini_batches)>;

struct SteadyStateRequest {
  std::uint32_t mini_batches = 8;    ///< N of the run; > 0
  std::uint32_t longest_period = 8;  ///< > 0; default_longest_period() is a good one
};

/// Segments longer than this are not simulated for the first window: differences are taken from
/// n = min(N, kLatestStart) on, so that a long run costs no more than a short one.
inline constexpr std::uint32_t kLatestStart = 64;
/// Windows tried, one behind the other, before a pipeline is said not to settle.
inline constexpr std::uint32_t kWindows = 4;

struct SteadyState {
  std::uint32_t period = 0;         ///< p, the smallest; in mini-batches; 0: none was found
  ir::Nanos period_ns = 0;          ///< makespan(n + p) - makespan(n), exact
  std::uint32_t from = 0;           ///< n: the differences repeat from here on
  std::optional<std::string> note;  ///< why there is none, or that it starts after the run's end

  [[nodiscard]] bool found() const { return period > 0; }

  /// period_ns / period, rounded half up to a whole nanosecond; absent when none was found.
  [[nodiscard]] std::optional<ir::Nanos> ns_per_mini_batch() const;
};

/// The number of stages, at least 8.
[[nodiscard]] std::uint32_t default_longest_period(std::uint32_t stages);

/// Calls `makespan_of` for at most kWindows * 2 * longest_period + 1 segments, the longest of
/// kLatestStart plus that many mini-batches; usually for 2 * longest_period + 1.
/// Errors: those of `makespan_of`.
[[nodiscard]] ir::Result<SteadyState> steady_state(const SteadyStateRequest& request,
                                                   const MakespanOf& makespan_of);

}  // namespace xpipe::simulator
