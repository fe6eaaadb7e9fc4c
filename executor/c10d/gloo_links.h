// Links over Gloo, by way of LibTorch's c10d: the ranks meet in a TCPStore, see that they are the
// ones that were expected, and connect every pair. No torch in this header.
//
//   rank 0 opens MASTER_ADDR:MASTER_PORT (or torchrun's agent has it open already)
//   each rank:  joins once -> sees all the others, with the world size it was given, too
//               -> ProcessGroupGloo -> a hello on every pair, in one fixed order
//
// After that nothing goes through the store, so rank 0's end is no worse than another's.
#pragma once

#include <memory>
#include <vector>

#include "executor/processes/launch_environment.h"
#include "executor/processes/link.h"
#include "executor/processes/meeting_place.h"
#include "ir/status.h"

namespace xpipe::executor {

/// Returns the links by rank, none for this one; they share the process group and keep it.
/// Errors: Runtime "port-in-use"; "rank-taken" when somebody has joined with this rank before (an
/// earlier run, or a launcher's mistake); "world-size" when another rank was given another one,
/// with both; "time-out", naming the ranks that are missing; Interrupted. Whatever one rank finds,
/// those that have joined end with, too.
[[nodiscard]] ir::Result<std::vector<std::unique_ptr<Link>>> connect_gloo(
    const LaunchEnvironment& launch, const Patience& patience);

}  // namespace xpipe::executor
