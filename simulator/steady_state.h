// Steady state: what one more mini-batch costs in the long run, by design.md §10.
//
//   d(n) = makespan(n + 1) - makespan(n)
//   f/b = 1/2 ms, latency 1 ms, D = 4, T = 1:   3, 5, 5, 5, 3, 5, 5, 5, ... ms   period 4, 4.5 ms
//
// Equal neighbours prove nothing (5, 5, 5 above): the period comes from the state of the replay
// (simulator/long_run.h), which repeats with a multiple of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/ids.h"

namespace xpipe::simulator {

struct SteadyState {
  std::uint32_t period = 0;         ///< p, the smallest; in mini-batches; 0: none was found
  ir::Nanos period_ns = 0;          ///< makespan(n + p) - makespan(n), exact
  std::uint32_t from = 0;           ///< n: proven to repeat from here on
  std::optional<std::string> note;  ///< why there is none, or that it starts after the run's end

  [[nodiscard]] bool found() const { return period > 0; }

  /// period_ns / period, rounded half up to a whole nanosecond; absent when none was found.
  [[nodiscard]] std::optional<ir::Nanos> ns_per_mini_batch() const {
    if (!found()) {
      return std::nullopt;
    }
    return period_ns / period + (2 * (period_ns % period) >= period ? 1 : 0);
  }
};

}  // namespace xpipe::simulator
