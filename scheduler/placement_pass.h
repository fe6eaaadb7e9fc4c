// The placement pass: puts the stages of a plan on the devices that a layout names. A policy writes
// one order for each stage, as if each had a device of its own; where several share one, their
// orders are merged by a replay in which every pass takes one unit of time:
//
//   a device that is free runs a pass that is first in its stage's order and whose inputs are
//   there; of several: backwards first, then the lower micro-batch, then the later stage
//
//   placement 0,0   stage 0:  F0 F1 .. B0 B1     ->   device 0:  0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1
//   (two stages)    stage 1:  F0 B0 F1 B1
//
// Steps, all-reduces and predictions take no time there and follow what stands before them at once.
// Each stage's own order stays as it was, so a stage means the same wherever it is; what can run
// with a device a stage can run on fewer.
#pragma once

#include <vector>

#include "ir/compute_plan.h"
#include "ir/ids.h"
#include "ir/status.h"
#include "scheduler/layout.h"
#include "scheduler/stage_graph.h"

namespace xpipe::scheduler {

/// Requires: a plan with every replica of every stage on a device of its own, and a layout of as
/// many stages and replicas. Errors: Internal when the plan's orders wait for each other.
[[nodiscard]] ir::Result<ir::ComputePlan> place(ir::ComputePlan plan,
                                                const Layout& layout,
                                                const StageGraph& graph);

}  // namespace xpipe::scheduler
