// Which processors the threads of the stages are pinned to, so that the system does not move a
// stage away from what its caches hold. Nothing that is computed depends on it.
//
//   allowed 0 1 2 3 4 5 6 7, 2 processes of 2 stages, 1 intra-op thread
//     local rank 0:  stages on 0, 1        local rank 1:  stages on 2, 3
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace xpipe::executor {

/// The processors that this process may use, ascending. Empty where the system does not say.
[[nodiscard]] std::vector<std::uint32_t> allowed_processors();

/// A process among those of its machine.
struct LocalPlace {
  std::uint32_t rank = 0;
  std::uint32_t processes = 1;

  bool operator==(const LocalPlace&) const = default;
};

/// What the launcher says: LOCAL_RANK and LOCAL_WORLD_SIZE (torchrun), OMPI_COMM_WORLD_LOCAL_RANK
/// and _LOCAL_SIZE (mpirun), SLURM_LOCALID and SLURM_NTASKS_PER_NODE (srun). The only process where
/// no launcher speaks; nothing where one says half of it, or nonsense.
[[nodiscard]] std::optional<LocalPlace> local_place(
    const std::function<const char*(const char*)>& variable);

struct PinningRequest {
  std::uint32_t threads = 1;  ///< of stages, in this process
  std::uint32_t intra_op_threads =
      1;                         ///< of each; they inherit what the stage's thread is pinned to
  std::uint32_t local_rank = 0;  ///< among the processes of this machine
  std::uint32_t local_processes = 1;
};

/// Processors of each thread: intra_op_threads of them, nobody else's. Empty when `allowed` has not
/// enough for all threads of all processes: then the system places them better.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> pinned_processors(
    const std::vector<std::uint32_t>& allowed, const PinningRequest& request);

}  // namespace xpipe::executor
