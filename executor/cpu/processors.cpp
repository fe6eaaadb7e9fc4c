#include "executor/cpu/processors.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <string_view>
#include <utility>

#include <sched.h>

namespace xpipe::executor {

std::vector<std::uint32_t> allowed_processors() {
  std::vector<std::uint32_t> allowed;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return allowed;  // more processors than the set has places for
  }
  allowed.reserve(static_cast<std::size_t>(CPU_COUNT(&set)));
  for (std::uint32_t processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &set)) {
      allowed.push_back(processor);
    }
  }
  return allowed;
}

std::optional<LocalPlace> local_place(const std::function<const char*(const char*)>& variable) {
  constexpr std::array kNames{std::pair{"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
                              std::pair{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                              std::pair{"SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}};
  const auto number = [&variable](const char* name) -> std::optional<std::uint32_t> {
    const char* text = variable(name);
    const std::string_view digits = text != nullptr ? text : "";
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool is_number =
        !digits.empty() && error == std::errc() && end == digits.data() + digits.size();
    return is_number ? std::optional(value) : std::nullopt;
  };
  for (const auto& [rank_name, processes_name] : kNames) {
    if (variable(rank_name) == nullptr) {
      continue;
    }
    const std::optional<std::uint32_t> rank = number(rank_name);
    const std::optional<std::uint32_t> processes = number(processes_name);
    if (!rank || !processes || *rank >= *processes) {
      return std::nullopt;
    }
    return LocalPlace{.rank = *rank, .processes = *processes};
  }
  return LocalPlace{};
}

std::vector<std::vector<std::uint32_t>> pinned_processors(const std::vector<std::uint32_t>& allowed,
                                                          const PinningRequest& request) {
  const std::size_t of_process = std::size_t{request.threads} * request.intra_op_threads;
  if (request.local_rank >= request.local_processes ||
      allowed.size() < of_process * request.local_processes) {
    return {};
  }
  std::vector<std::vector<std::uint32_t>> pinned(request.threads);
  auto next = allowed.begin() + static_cast<std::ptrdiff_t>(of_process * request.local_rank);
  for (std::vector<std::uint32_t>& processors : pinned) {
    processors.assign(next, next + request.intra_op_threads);
    next += request.intra_op_threads;
  }
  return pinned;
}

}  // namespace xpipe::executor
