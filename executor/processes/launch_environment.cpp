#include "executor/processes/launch_environment.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace xpipe::executor {

namespace {

ir::Error usage(std::string where, std::string message) {
  return ir::make_error(ir::ErrorKind::Usage, "launch", std::move(where), std::move(message));
}

/// Ports for jobs without one; above those that systems give to services, below those for clients.
constexpr std::uint32_t kFirstPort = 20000;
constexpr std::uint32_t kPorts = 10000;

std::uint16_t port_of_job(const std::string& job) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : job) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  }
  return static_cast<std::uint16_t>(kFirstPort + hash % kPorts);
}

class Variables {
 public:
  explicit Variables(const GetVariable& variable) : variable_(variable) {}

  [[nodiscard]] std::string text(const char* name) const {
    const char* value = variable_(name);
    return value == nullptr ? "" : value;
  }

  [[nodiscard]] bool has(const char* name) const { return !text(name).empty(); }

  [[nodiscard]] ir::Result<std::uint32_t> number(const char* name,
                                                 std::uint32_t least,
                                                 std::uint32_t most) const {
    const std::string value = text(name);
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || value.empty() ||
        number < least || number > most) {
      return usage(name, (value.empty() ? "is not set" : "is '" + value + "'") +
                             std::string("; want a whole number from ") + std::to_string(least) +
                             " to " + std::to_string(most));
    }
    return number;
  }

 private:
  const GetVariable& variable_;
};

struct Names {
  const char* launcher;
  const char* rank;
  const char* ranks;
  const char* job;
  const char* local_rank;
  const char* local_ranks;
};

constexpr Names kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_LOCALID", ""},
};

/// Who speaks; both numbers for torchrun's, since a shell may have either for its own purposes.
const Names* find_launcher(const Variables& variables) {
  const auto* found = std::ranges::find_if(kLaunchers, [&](const Names& names) {
    return variables.has(names.rank) || (&names == kLaunchers && variables.has(names.ranks));
  });
  return found == std::end(kLaunchers) ? nullptr : found;
}

std::string address_of(const Variables& variables, const Names& names) {
  if (variables.has("MASTER_ADDR")) {
    return variables.text("MASTER_ADDR");
  }
  if (std::string_view(names.launcher) == "srun") {
    if (variables.has("SLURM_LAUNCH_NODE_IPADDR") && !variables.has("SLURM_JOB_NODELIST")) {
      return variables.text("SLURM_LAUNCH_NODE_IPADDR");
    }
    if (const std::string node = first_node(variables.text("SLURM_JOB_NODELIST")); !node.empty()) {
      return node;
    }
  }
  return "127.0.0.1";
}

bool is_own_address(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

/// Where the rank is on its machine, as far as anybody says.
ir::Status find_local_place(const Variables& variables,
                            const Names& names,
                            LaunchEnvironment& launch) {
  if (variables.has(names.local_ranks)) {
    const auto local_ranks = variables.number(names.local_ranks, 1, launch.ranks);
    if (!local_ranks.ok()) {
      return local_ranks.status();
    }
    launch.local_ranks = local_ranks.value();
  } else if (variables.text("SLURM_NNODES") == "1" || is_own_address(launch.address)) {
    launch.local_ranks = launch.ranks;
  }
  if (variables.has(names.local_rank)) {
    const auto local_rank =
        variables.number(names.local_rank, 0, launch.local_ranks.value_or(launch.ranks) - 1);
    if (!local_rank.ok()) {
      return local_rank.status();
    }
    launch.local_rank = local_rank.value();
  } else if (launch.local_ranks == launch.ranks) {
    launch.local_rank = launch.rank;
  }
  return {};
}

}  // namespace

ir::Result<std::optional<LaunchEnvironment>> launch_environment(const GetVariable& variable) {
  const Variables variables(variable);
  const Names* names = find_launcher(variables);
  if (names == nullptr) {
    return std::optional<LaunchEnvironment>();
  }
  const auto ranks = variables.number(names->ranks, 1, 65536);
  if (!ranks.ok()) {
    return ranks.error();
  }
  const auto rank = variables.number(names->rank, 0, 65535);
  if (!rank.ok()) {
    return rank.error();
  }
  if (rank.value() >= ranks.value()) {
    return usage(names->rank, "is " + std::to_string(rank.value()) + ", and " + names->ranks +
                                  " is " + std::to_string(ranks.value()) + "; ranks count from 0 " +
                                  "to " + std::to_string(ranks.value() - 1));
  }
  LaunchEnvironment launch{.rank = rank.value(),
                           .ranks = ranks.value(),
                           .address = address_of(variables, *names),
                           .port = 0,
                           .launcher = names->launcher,
                           .launched = names != kLaunchers || variables.has(names->job),
                           .agent_store = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True",
                           .attempt = variables.text("TORCHELASTIC_RESTART_COUNT")};
  if (variables.has("MASTER_PORT")) {
    const auto port = variables.number("MASTER_PORT", 1, 65535);
    if (!port.ok()) {
      return port.error();
    }
    launch.port = static_cast<std::uint16_t>(port.value());
  } else if (variables.has(names->job)) {
    launch.port = port_of_job(variables.text(names->job));
  } else if (launch.ranks > 1) {
    return usage("MASTER_PORT", std::string("is not set, and neither is ") + names->job +
                                    "; say on which port of " + launch.address +
                                    " the ranks meet, or launch with torchrun --standalone");
  }
  if (ir::Status status = find_local_place(variables, *names, launch); !status.ok()) {
    return status.error();
  }
  return std::optional(launch);
}

std::string first_node(const std::string& node_list) {
  const std::size_t bracket = node_list.find('[');
  const std::size_t comma = node_list.find(',');
  if (bracket == std::string::npos || comma < bracket) {
    return node_list.substr(0, comma);
  }
  const std::size_t end = node_list.find_first_of(",-]", bracket + 1);
  const std::size_t close = node_list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) {
    return node_list;
  }
  const std::size_t after = node_list.find(',', close);
  return node_list.substr(0, bracket) + node_list.substr(bracket + 1, end - bracket - 1) +
         node_list.substr(close + 1, after == std::string::npos ? after : after - close - 1);
}

ir::Status check_ranks(std::uint32_t devices, std::uint32_t ranks) {
  if (ranks > 0 && devices % ranks == 0 && devices >= ranks) {
    return {};
  }
  return usage("--stages", "the run has " + std::to_string(devices) + " device(s) and " +
                               std::to_string(ranks) +
                               " process(es); want as many of both, or a whole number of devices a "
                               "process");
}

}  // namespace xpipe::executor
