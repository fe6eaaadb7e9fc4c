// The engine: runs a schedule on a backend. It knows lanes, edges and events, no vendor, and it
// decides nothing: order and dependencies stand in the schedule.
#pragma once

#include "executor/device.h"
#include "executor/handlers.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/timeline.h"

namespace xpipe::executor {

/// Runs every task of `schedule` once. `schedule` must be legal.
/// Returns the measured (virtual: planned) timeline. Errors: the first failure, with the task's
/// text form; Usage when a kind of task has no handler. Everything has stopped on return.
[[nodiscard]] ir::Result<ir::Timeline> run(const ir::Schedule& schedule,
                                           const HandlerTable& handlers,
                                           Backend& backend);

}  // namespace xpipe::executor
