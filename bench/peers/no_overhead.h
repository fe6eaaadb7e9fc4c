// What a schedule takes when its tasks take what they took in a run, and nothing else takes time:
// each starts when all that it waits for have ended. What a run is longer than that is the
// executor's own; the rest of a pipeline's distance from its limit is the order's, whose stages
// wait for each other whenever one micro-batch takes longer than usual.
#pragma once

#include "ir/schedule.h"
#include "ir/timeline.h"

namespace xpipe::bench {

/// Requires: the timeline of a run of `schedule` in one process.
[[nodiscard]] ir::Timeline without_overhead(const ir::Schedule& schedule, const ir::Timeline& run);

}  // namespace xpipe::bench
