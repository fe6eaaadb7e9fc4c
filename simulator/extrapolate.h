// The figures of a long run (simulator/long_run.h) from those of its base and of the segment one
// period longer. Times and sums grow by the same amount with every period; peaks and staleness stay
// as they are. The equations are exact: what the full replay would say.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/memory.h"
#include "simulator/metrics.h"
#include "simulator/staleness.h"

namespace xpipe::simulator {

/// Requires: both of the same run, `longer` one period longer than `base`.
[[nodiscard]] Metrics extrapolated(const Metrics& base,
                                   const Metrics& longer,
                                   std::uint64_t repeats);

/// Peaks, and when they are first reached; the curves are left out. Requires: as above.
[[nodiscard]] std::vector<DeviceMemory> extrapolated(const std::vector<DeviceMemory>& base,
                                                     const std::vector<DeviceMemory>& longer,
                                                     std::uint64_t repeats);

/// Whether `base` tells the staleness of longer runs: every stage has settled in both, and has the
/// same extremes, distances and storages. (The lists by micro-batch stay those of `base`.)
[[nodiscard]] bool is_settled(const std::vector<StageStaleness>& base,
                              const std::vector<StageStaleness>& longer);

}  // namespace xpipe::simulator
