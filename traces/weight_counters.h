// Counters that follow from schedule and timeline alone: what each stage's weights are over time.
#pragma once

#include <vector>

#include "ir/schedule.h"
#include "ir/timeline.h"
#include "traces/chrome_trace.h"

namespace xpipe::traces {

/// For each stage, in order:
///   "stage k version"     the master's version: rises when a step ends
///   "stage k storages"    weight storages that hold something somebody will still read, the master
///                         included: from the start of the task that writes a slot to the end of
///                         its last reader (or its release)
///   "stage k staleness forward", "... backward"
///                         staleness (design.md §3) of the weights that the pass read that began
///                         last: steps this stage makes in the segment for mini-batches before the
///                         pass's own, minus the version read
/// A series that never changes is given with its base alone. Requires: a legal schedule, a timeline
/// that fits.
[[nodiscard]] std::vector<CounterSeries> weight_counters(const ir::Schedule& schedule,
                                                         const ir::Timeline& timeline);

}  // namespace xpipe::traces
