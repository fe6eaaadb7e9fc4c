// The engine: runs a schedule on a backend. It knows lanes, edges and events, no vendor, and it
// decides nothing: order and dependencies stand in the schedule. Where several processes share a
// schedule, each runs the lanes of its own devices.
#pragma once

#include "executor/device.h"
#include "executor/handlers.h"
#include "executor/remote_tasks.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/timeline.h"

namespace xpipe::executor {

/// Runs every task of `schedule` once, each after all its predecessors. `schedule` must be legal
/// (ir/validate.h); it and `handlers` must outlive the call.
/// With `remote`, runs the tasks of the local devices, waits for those of others where an edge says
/// so, and tells `remote` of each local task that others wait for, after its handler succeeded.
/// Returns the measured (virtual: planned) timeline of what was run here. Everything has stopped on
/// return, except a handler that hangs beyond the backend's time-out.
/// Errors: Usage "no-handler", one for each kind that has none, before anything runs; the first
/// failure, with the task's text form in `where`: what a handler returned, or Runtime
/// "handler-failed" for what it threw; Runtime "time-out"; the reason of Backend::stop(); Usage
/// "one-process" where the backend cannot wait for other processes.
[[nodiscard]] ir::Result<ir::Timeline> run(const ir::Schedule& schedule,
                                           const HandlerTable& handlers,
                                           Backend& backend,
                                           RemoteTasks* remote = nullptr);

}  // namespace xpipe::executor
