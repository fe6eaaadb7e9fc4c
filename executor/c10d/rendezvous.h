// How the ranks of a run find each other in a c10d store, before they are connected.
//
//   count/2   how often rank 2 has joined: more than once is one too many
//   world/2   what rank 2 was told of the world's size
//   failed    why this meeting fails; whoever sees it ends with it
//   seen      how many have seen that
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "executor/processes/launch_environment.h"
#include "executor/processes/meeting_place.h"
#include "ir/status.h"

namespace xpipe::executor {

/// Opens (rank 0) or reaches the store. Errors: as connect_gloo().
[[nodiscard]] ir::Result<c10::intrusive_ptr<c10d::Store>> open_store(
    const LaunchEnvironment& launch, const Patience& patience);

/// Returns when all ranks are there. Errors: as connect_gloo(), the same on all ranks.
[[nodiscard]] ir::Status join(c10d::Store& store,
                              const LaunchEnvironment& launch,
                              const Patience& patience);

}  // namespace xpipe::executor
