// Writes a schedule as a Graphviz graph: a cluster per device, a node per task, solid arrows for
// edges, dotted ones for the order within a lane.
#pragma once

#include <string>

#include "ir/schedule.h"

namespace xpipe::ir {

[[nodiscard]] std::string schedule_to_dot(const Schedule& schedule);

}  // namespace xpipe::ir
