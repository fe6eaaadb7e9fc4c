// What the launcher says about this process: torchrun, mpirun (Open MPI) or srun, by the
// environment. A pure function of the variables, so that tests need no launcher.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "ir/status.h"

namespace xpipe::executor {

struct LaunchEnvironment {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::string address;     ///< host of rank 0, where the ranks meet
  std::uint16_t port = 0;  ///< on that host
  std::string launcher;    ///< "torchrun", "mpirun", "srun": as printed
  /// It did start this process, and waits for it; else RANK and WORLD_SIZE may be set by hand.
  bool launched = false;
  /// torchrun holds the meeting place itself: rank 0 joins it as the others do.
  bool agent_store = false;
  /// Which of the ranks on this machine this is, and how many are there; absent: nobody says, and
  /// the ranks do not meet on this machine's own address.
  std::optional<std::uint32_t> local_rank;
  std::optional<std::uint32_t> local_ranks;
  /// Tells one attempt of torchrun from the next at the same place; "" elsewhere.
  std::string attempt;

  bool operator==(const LaunchEnvironment&) const = default;
};

/// The value of a variable; nullptr: not set. std::getenv fits.
using GetVariable = std::function<const char*(const char*)>;

/// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT first, as torchrun sets them (and anybody may);
/// else OMPI_COMM_WORLD_RANK and _SIZE; else SLURM_PROCID and SLURM_NTASKS. Without an address:
/// srun's SLURM_LAUNCH_NODE_IPADDR or the first node of its list, else 127.0.0.1. Without a port:
/// one made from the job's id, so that two jobs do not meet.
/// Places on the machine: LOCAL_RANK and LOCAL_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK and _SIZE,
/// SLURM_LOCALID (all ranks are here when SLURM_NNODES is 1).
/// Returns nothing when no launcher speaks: an ordinary run of one process.
/// Errors: Usage, naming the variable, its value and what it should be.
[[nodiscard]] ir::Result<std::optional<LaunchEnvironment>> launch_environment(
    const GetVariable& variable);

/// "node[03-07,9],login1" -> "node03". Source: the manual of scontrol, hostlist expressions.
[[nodiscard]] std::string first_node(const std::string& node_list);

/// Whether `devices` can be dealt out in equal blocks. Errors: Usage with both numbers.
[[nodiscard]] ir::Status check_ranks(std::uint32_t devices, std::uint32_t ranks);

}  // namespace xpipe::executor
