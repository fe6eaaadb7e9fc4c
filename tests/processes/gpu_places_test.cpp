// Which GPU whose devices are on, and what NCCL cannot join (field case K4).
#include "executor/processes/gpu_places.h"

#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace xpipe::tests {
namespace {

using executor::GpuWish;
using executor::LaunchEnvironment;

using Gpus = std::vector<std::uint32_t>;

LaunchEnvironment on_one_machine(std::uint32_t rank, std::uint32_t ranks) {
  LaunchEnvironment launch{.rank = rank, .ranks = ranks, .address = "127.0.0.1", .port = 1};
  launch.local_rank = rank;
  launch.local_ranks = ranks;
  return launch;
}

/// Rank `rank` of 4, two to a machine.
LaunchEnvironment on_two_machines(std::uint32_t rank) {
  LaunchEnvironment launch = on_one_machine(rank, 4);
  launch.local_rank = rank % 2;
  launch.local_ranks = 2;
  return launch;
}

std::string refusal(const ir::Status& status) {
  REQUIRE(!status.ok());
  CHECK(status.error().kind == ir::ErrorKind::Usage);
  return status.error().to_string();
}

TEST_CASE("gpu places: without a map a rank's devices are on GPU LOCAL_RANK modulo those there") {
  const GpuWish wish{.devices = 8};
  CHECK(executor::gpu_places(on_one_machine(0, 4), wish, 4) == Gpus(8, 0));
  CHECK(executor::gpu_places(on_one_machine(3, 4), wish, 4) == Gpus(8, 3));
  CHECK(executor::gpu_places(on_one_machine(3, 4), wish, 2) == Gpus(8, 1));
  CHECK(executor::gpu_places(on_two_machines(3), wish, 2) == Gpus(8, 1));
  CHECK(executor::gpu_places(on_two_machines(2), wish, 2) == Gpus(8, 0));
  LaunchEnvironment unknown{.rank = 5, .ranks = 8};
  CHECK(executor::gpu_places(unknown, wish, 4) == Gpus(8, 1));
}

TEST_CASE("gpu places: a map counts the run's devices; those of other ranks ask for no GPU here") {
  const GpuWish wish{.devices = 4, .map = {0, 1, 7, 9}};
  CHECK(executor::gpu_places(on_one_machine(0, 2), wish, 2) == Gpus{0, 1, 0, 0});
  CHECK(executor::gpu_places(on_one_machine(1, 2), wish, 10) == Gpus{7, 7, 7, 9});
}

TEST_CASE("gpu places: more ranks than GPUs are refused for nccl with both numbers (K4)") {
  const GpuWish wish{.devices = 2};
  const std::string said = refusal(executor::check_gpus_for_nccl(on_one_machine(0, 2), wish, 1));
  CHECK(
      said ==
      "--transport: nccl wants a GPU for each of the 2 ranks of this machine, and it shows 1; use "
      "--transport gloo, whose ranks may share a GPU, or one process, whose stages are threads or "
      "streams (--transport inprocess) [too-few-gpus]");
  CHECK(executor::check_gpus_for_nccl(on_one_machine(1, 2), wish, 2).ok());
  CHECK(executor::check_gpus_for_nccl(on_two_machines(3), {.devices = 4}, 2).ok());
  CHECK(!executor::check_gpus_for_nccl(on_two_machines(3), {.devices = 4}, 1).ok());
}

TEST_CASE("gpu places: a map that puts two ranks on one GPU is refused for nccl (K4)") {
  const std::string said =
      refusal(executor::check_map_for_nccl(on_one_machine(1, 2), {.devices = 2, .map = {0, 0}}));
  CHECK(said.find("--device-map: puts device 0 of rank 0 and device 1 of rank 1 on GPU 0, and NCCL "
                  "wants a GPU for each rank") == 0);
  CHECK(said.find("gloo") != std::string::npos);
  // One entry is for all devices.
  CHECK(!executor::check_map_for_nccl(on_one_machine(0, 2), {.devices = 2, .map = {1}}).ok());
  // Devices of one rank may share.
  CHECK(
      executor::check_map_for_nccl(on_one_machine(0, 2), {.devices = 4, .map = {0, 0, 1, 1}}).ok());
  CHECK(!executor::check_map_for_nccl(on_one_machine(0, 2), {.devices = 4, .map = {0, 1}}).ok());
}

TEST_CASE("gpu places: equal numbers on two machines are two GPUs") {
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    CHECK(executor::check_map_for_nccl(on_two_machines(rank), {.devices = 4, .map = {0, 1}}).ok());
    CHECK(!executor::check_map_for_nccl(on_two_machines(rank), {.devices = 4, .map = {0, 0, 1, 1}})
               .ok());
  }
}

TEST_CASE("gpu places: where a rank sees its own GPUs only, nothing is refused before they meet") {
  const GpuWish narrowed{.devices = 2, .map = {0, 0}, .narrowed = true};
  CHECK(executor::check_map_for_nccl(on_one_machine(0, 2), narrowed).ok());
  CHECK(executor::check_gpus_for_nccl(on_one_machine(0, 2), narrowed, 1).ok());
  const LaunchEnvironment unknown{.rank = 1, .ranks = 2};
  CHECK(executor::check_map_for_nccl(unknown, {.devices = 2, .map = {0, 0}}).ok());
  CHECK(executor::check_gpus_for_nccl(unknown, {.devices = 2}, 1).ok());
}

using Variables = std::map<std::string, std::string>;

LaunchEnvironment launched(const Variables& variables) {
  auto launch = executor::launch_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  REQUIRE_MESSAGE(launch.ok(), launch.error().to_string());
  return *launch.value();
}

TEST_CASE("launch environment: who is on which machine, as each launcher says it") {
  const LaunchEnvironment torchrun = launched({{"RANK", "5"},
                                               {"WORLD_SIZE", "8"},
                                               {"MASTER_ADDR", "node0"},
                                               {"MASTER_PORT", "29500"},
                                               {"LOCAL_RANK", "1"},
                                               {"LOCAL_WORLD_SIZE", "4"}});
  CHECK(torchrun.local_rank == 1U);
  CHECK(torchrun.local_ranks == 4U);
  const LaunchEnvironment mpirun = launched({{"OMPI_COMM_WORLD_RANK", "3"},
                                             {"OMPI_COMM_WORLD_SIZE", "4"},
                                             {"MASTER_ADDR", "node0"},
                                             {"MASTER_PORT", "29500"},
                                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  CHECK(mpirun.local_rank == 1U);
  CHECK(mpirun.local_ranks == 2U);
  const LaunchEnvironment srun = launched({{"SLURM_PROCID", "3"},
                                           {"SLURM_NTASKS", "4"},
                                           {"SLURM_JOB_ID", "7"},
                                           {"SLURM_JOB_NODELIST", "n[1-2]"},
                                           {"SLURM_LOCALID", "1"}});
  CHECK(srun.local_rank == 1U);
  CHECK(!srun.local_ranks);
  const LaunchEnvironment by_hand =
      launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}});
  CHECK(by_hand.local_rank == 1U);
  CHECK(by_hand.local_ranks == 2U);
  const LaunchEnvironment far = launched(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}});
  CHECK(!far.local_rank);
  CHECK(!far.local_ranks);
}

}  // namespace
}  // namespace xpipe::tests
