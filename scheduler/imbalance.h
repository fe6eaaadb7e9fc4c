// What a partition is judged by among those with the smallest bottleneck: rules 1 and 2 of
// scheduler/partition.h.
#pragma once

#include <compare>

namespace xpipe::scheduler {

/// Holds the square of any sum of times, which is < 2^63.
__extension__ using Wide = unsigned __int128;

/// Smaller is better.
struct Imbalance {
  Wide times = 0;   ///< sum of squared stage times
  Wide counts = 0;  ///< sum of squared layer counts

  auto operator<=>(const Imbalance&) const = default;
};

}  // namespace xpipe::scheduler
