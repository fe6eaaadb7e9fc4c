#include "executor/processes/gpu_places.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace xpipe::executor {

namespace {

constexpr const char* kWaysOut =
    "use --transport gloo, whose ranks may share a GPU, or one process, whose stages are threads "
    "or "
    "streams (--transport inprocess)";

ir::Error usage(std::string code, std::string where, std::string message) {
  return ir::make_error(ir::ErrorKind::Usage, std::move(code), std::move(where),
                        std::move(message));
}

std::uint32_t devices_per_rank(const LaunchEnvironment& launch, const GpuWish& wish) {
  return wish.devices / launch.ranks;
}

}  // namespace

ir::Status check_map_for_nccl(const LaunchEnvironment& launch, const GpuWish& wish) {
  if (wish.map.empty() || wish.narrowed || !launch.local_rank || !launch.local_ranks) {
    return {};
  }
  // Launchers fill a machine before the next one.
  const std::uint32_t first_rank = launch.rank - std::min(launch.rank, *launch.local_rank);
  const std::uint32_t block = devices_per_rank(launch, wish);
  std::map<std::uint32_t, std::uint32_t> first_on;  // by GPU: a device
  for (std::uint32_t d = first_rank * block;
       d < wish.devices && d < (first_rank + *launch.local_ranks) * block; ++d) {
    const std::uint32_t gpu = wish.map[d % wish.map.size()];
    const std::uint32_t other = first_on.emplace(gpu, d).first->second;
    if (other / block != d / block) {
      return usage("one-gpu", "--device-map",
                   "puts device " + std::to_string(other) + " of rank " +
                       std::to_string(other / block) + " and device " + std::to_string(d) +
                       " of rank " + std::to_string(d / block) + " on GPU " + std::to_string(gpu) +
                       ", and NCCL wants a GPU for each rank; give each its own, or " + kWaysOut);
    }
  }
  return {};
}

ir::Status check_gpus_for_nccl(const LaunchEnvironment& launch,
                               const GpuWish& wish,
                               std::uint32_t gpus) {
  if (wish.narrowed || !launch.local_ranks || *launch.local_ranks <= gpus) {
    return {};
  }
  return usage("too-few-gpus", "--transport",
               "nccl wants a GPU for each of the " + std::to_string(*launch.local_ranks) +
                   " ranks of this machine, and it shows " + std::to_string(gpus) + "; " +
                   kWaysOut);
}

std::vector<std::uint32_t> gpu_places(const LaunchEnvironment& launch,
                                      const GpuWish& wish,
                                      std::uint32_t gpus) {
  const std::uint32_t block = devices_per_rank(launch, wish);
  const std::uint32_t own = launch.local_rank.value_or(launch.rank) % gpus;
  const auto place = [&](std::uint32_t device) {
    return wish.map.empty() ? own : wish.map[device % wish.map.size()];
  };
  std::vector<std::uint32_t> places(wish.devices, place(launch.rank * block));
  for (std::uint32_t d = launch.rank * block; d < (launch.rank + 1) * block; ++d) {
    places[d] = place(d);
  }
  return places;
}

}  // namespace xpipe::executor
