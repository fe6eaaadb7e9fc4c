// What the engine calls to do the work of a task: one handler per task kind, in a table that the
// caller fills. The engine knows nothing of torch; executor/torch fills the table with the real
// thing, tests with recorders and injected faults.
#pragma once

#include <array>
#include <functional>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/task.h"

namespace xpipe::executor {

/// Does the work of `task`. Called on the thread (or stream) of the task's lane, never twice, never
/// before all its predecessors are done. May throw: the engine turns that into an Error too.
using Handler = std::function<ir::Status(const ir::Schedule&, ir::TaskId)>;

/// By TaskKind. An empty entry: the engine refuses a schedule that has such a task, before it runs.
using HandlerTable = std::array<Handler, ir::kTaskKinds>;

/// A table that does nothing, successfully, for every kind.
[[nodiscard]] HandlerTable no_op_handlers();

}  // namespace xpipe::executor
