// The things that a what-if makes faster, one by one: each with the costs that it leads to and what
// the critical path spends on it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/what_if.h"

#include "ir/cluster.h"
#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/task.h"
#include "scheduler/cost_model.h"

namespace xpipe::app {

/// A part of the critical path: a task, or the flight of a message after its send.
struct PathPart {
  const ir::Task& task;
  const ir::Lane& lane;
  bool in_flight = false;
};

/// One thing made faster.
struct Change {
  WhatIfTarget target = WhatIfTarget::Device;
  std::string name;
  std::function<void(ir::Cluster&)> edit_cluster;         ///< either this
  std::function<void(scheduler::CostModel&)> edit_costs;  ///< or this
  std::function<ir::Nanos(const PathPart&, ir::Nanos time)>
      on_path;  ///< how much of the part it is about
};

/// The costs with the change made. Errors: those of base.model_of().
[[nodiscard]] ir::Result<scheduler::CostModel> costs_with(const Change& change,
                                                          const WhatIfBase& base);

/// Devices, stages, links, shared links, then kinds; each `factor` times as fast. `base` must
/// outlive them.
[[nodiscard]] std::vector<Change> changes_of(const WhatIfBase& base, double factor);

}  // namespace xpipe::app
