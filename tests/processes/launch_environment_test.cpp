// What torchrun, mpirun and srun say, and what is refused.
#include "executor/processes/launch_environment.h"

#include <map>
#include <string>

#include <doctest/doctest.h>

namespace xpipe::tests {

namespace {

using executor::LaunchEnvironment;
using Variables = std::map<std::string, std::string>;

ir::Result<std::optional<LaunchEnvironment>> read(const Variables& variables) {
  return executor::launch_environment([&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

LaunchEnvironment good(const Variables& variables) {
  const auto launch = read(variables);
  REQUIRE_MESSAGE(launch.ok(), launch.status().error().to_string());
  REQUIRE(launch.value());
  return *launch.value();
}

std::string refused(const Variables& variables) {
  const auto launch = read(variables);
  REQUIRE(!launch.ok());
  CHECK(launch.error().kind == ir::ErrorKind::Usage);
  return launch.error().to_string();
}

}  // namespace

TEST_CASE("launch: without a launcher there is one process") {
  CHECK(read({}).value() == std::nullopt);
  CHECK(read({{"MASTER_PORT", "29500"}, {"SLURM_JOB_ID", "12"}}).value() == std::nullopt);
}

TEST_CASE("launch: torchrun's variables") {
  const LaunchEnvironment launch = good({{"RANK", "1"},
                                         {"WORLD_SIZE", "4"},
                                         {"MASTER_ADDR", "node7"},
                                         {"MASTER_PORT", "29511"},
                                         {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                         {"TORCHELASTIC_RESTART_COUNT", "2"}});
  CHECK(launch == LaunchEnvironment{.rank = 1,
                                    .ranks = 4,
                                    .address = "node7",
                                    .port = 29511,
                                    .launcher = "torchrun",
                                    .agent_store = true,
                                    .attempt = "2"});
}

TEST_CASE("launch: a launcher that waits for its processes is told from variables set by hand") {
  Variables variables = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29511"}};
  CHECK_FALSE(good(variables).launched);
  variables["TORCHELASTIC_RUN_ID"] = "none";
  CHECK(good(variables).launched);
  CHECK(
      good({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "1"}})
          .launched);
  CHECK(good({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "99"}}).launched);
}

TEST_CASE(
    "launch: mpirun's variables; a port from the job, the same on all ranks, others' another") {
  const auto job = [](const char* rank, const char* name) {
    return good(
        {{"OMPI_COMM_WORLD_RANK", rank}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", name}});
  };
  const LaunchEnvironment first = job("0", "prterun-1@1");
  CHECK(first.launcher == "mpirun");
  CHECK(first.address == "127.0.0.1");
  CHECK(first.port >= 20000);
  CHECK(first.port < 30000);
  CHECK(job("1", "prterun-1@1").port == first.port);
  CHECK(job("0", "prterun-2@1").port != first.port);
}

TEST_CASE("launch: srun's variables; the first node of the list is where the ranks meet") {
  Variables variables = {{"SLURM_PROCID", "3"},
                         {"SLURM_NTASKS", "8"},
                         {"SLURM_JOB_ID", "99"},
                         {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"},
                         {"SLURM_JOB_NODELIST", "node[03-07,9],login1"}};
  CHECK(good(variables).address == "node03");
  CHECK(good(variables).rank == 3);
  variables.erase("SLURM_JOB_NODELIST");
  CHECK(good(variables).address == "10.0.0.1");
  variables["MASTER_ADDR"] = "here";
  CHECK(good(variables).address == "here");
}

TEST_CASE("launch: RANK and WORLD_SIZE win over the others") {
  CHECK(good({{"RANK", "0"},
              {"WORLD_SIZE", "2"},
              {"MASTER_PORT", "1234"},
              {"SLURM_PROCID", "5"},
              {"SLURM_NTASKS", "8"}})
            .ranks == 2);
}

TEST_CASE("launch: node lists") {
  using executor::first_node;
  CHECK(first_node("") == "");
  CHECK(first_node("a") == "a");
  CHECK(first_node("a,b") == "a");
  CHECK(first_node("n[1,5]") == "n1");
  CHECK(first_node("n[001-128]-ib,m2") == "n001-ib");
  CHECK(first_node("a,n[1-2]") == "a");
}

TEST_CASE("launch: what cannot be is refused with the variable and both numbers (K3)") {
  CHECK(refused({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "1"}}) ==
        "RANK: is 4, and WORLD_SIZE is 4; ranks count from 0 to 3 [launch]");
  CHECK(refused({{"RANK", "0"}}).find("WORLD_SIZE: is not set") == 0);
  CHECK(refused({{"WORLD_SIZE", "2"}}).find("RANK: is not set") == 0);
  CHECK(refused({{"RANK", "0"}, {"WORLD_SIZE", "2x"}}).find("WORLD_SIZE: is '2x'") == 0);
  CHECK(refused({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}).find("RANK: is '-1'") == 0);
  CHECK(refused({{"RANK", "0"}, {"WORLD_SIZE", "0"}}).find("WORLD_SIZE: is '0'") == 0);
  CHECK(refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}})
            .find("MASTER_PORT: is '70000'; want a whole number from 1 to 65535") == 0);
  CHECK(refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).find("MASTER_PORT: is not set") == 0);
}

TEST_CASE("launch: devices must deal out evenly over the processes (K3)") {
  CHECK(executor::check_ranks(4, 4).ok());
  CHECK(executor::check_ranks(4, 2).ok());
  CHECK(executor::check_ranks(4, 1).ok());
  for (const auto& [devices, ranks] : {std::pair{4U, 3U}, std::pair{3U, 8U}, std::pair{1U, 2U}}) {
    const ir::Status status = executor::check_ranks(devices, ranks);
    REQUIRE(!status.ok());
    CHECK(status.error().kind == ir::ErrorKind::Usage);
    CHECK(status.error().to_string().find(std::to_string(devices) + " device(s) and " +
                                          std::to_string(ranks) + " process(es)") !=
          std::string::npos);
  }
}

}  // namespace xpipe::tests
