// The engine: runs a schedule on a backend. It knows lanes, edges and events, no vendor, and it
// decides nothing: order and dependencies stand in the schedule.
#pragma once

#include "executor/device.h"
#include "executor/handlers.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/timeline.h"

namespace xpipe::executor {

/// Runs every task of `schedule` once, each after all its predecessors. `schedule` must be legal
/// (ir/validate.h); it and `handlers` must outlive the call.
/// Returns the measured (virtual: planned) timeline. Everything has stopped on return, except a
/// handler that hangs beyond the backend's time-out.
/// Errors: Usage "no-handler", one for each kind that has none, before anything runs; the first
/// failure, with the task's text form in `where`: what a handler returned, or Runtime
/// "handler-failed" for what it threw; Runtime "time-out"; the reason of Backend::stop().
[[nodiscard]] ir::Result<ir::Timeline> run(const ir::Schedule& schedule,
                                           const HandlerTable& handlers,
                                           Backend& backend);

}  // namespace xpipe::executor
