// The other process of a contender that runs as two: a stage each, over Gloo, as `xpipe train` does
// it. Launched with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as by torchrun.
#pragma once

#include <memory>

#include "executor/processes/processes.h"

namespace xpipe::bench {

/// Meets the other process; null where RANK is not set. Ends the program with a message when nobody
/// comes.
[[nodiscard]] std::unique_ptr<executor::Processes> meet_other_rank();

}  // namespace xpipe::bench
