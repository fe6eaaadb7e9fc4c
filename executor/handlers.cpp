#include "executor/handlers.h"

namespace xpipe::executor {

HandlerTable no_op_handlers() {
  HandlerTable table;
  table.fill([](const ir::Schedule&, ir::TaskId) { return ir::Status(); });
  return table;
}

}  // namespace xpipe::executor
