// Which GPU each rank's devices are on, and whether NCCL can join them: it wants a GPU for each
// rank, which Gloo does not. Pure, so that what is refused is tested on machines without a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/processes/launch_environment.h"
#include "ir/status.h"

namespace xpipe::executor {

/// What a rank has to go by.
struct GpuWish {
  std::uint32_t devices = 1;       ///< of the run; a multiple of the ranks
  std::vector<std::uint32_t> map;  ///< --device-map, device d on map[d mod size]; empty: not given
  /// CUDA_VISIBLE_DEVICES is set: what this rank sees may not be all that the machine has.
  bool narrowed = false;
};

/// Ranks of one machine that `map` puts on one GPU. Needs no GPU: to be asked first. Errors: Usage
/// "one-gpu", with the devices, ranks and the GPU. Says nothing where a rank sees its own GPUs only
/// or it is not known who is on this machine; then the ranks find out when they connect.
[[nodiscard]] ir::Status check_map_for_nccl(const LaunchEnvironment& launch, const GpuWish& wish);

/// Whether each rank of this machine can have one of the `gpus` that it shows. Errors: Usage
/// "too-few-gpus", with both numbers.
[[nodiscard]] ir::Status check_gpus_for_nccl(const LaunchEnvironment& launch,
                                             const GpuWish& wish,
                                             std::uint32_t gpus);

/// By device of the run: the GPU of those that run here, LOCAL_RANK modulo `gpus` where no map is
/// given; devices of other ranks repeat this rank's first. Requires: gpus > 0.
[[nodiscard]] std::vector<std::uint32_t> gpu_places(const LaunchEnvironment& launch,
                                                    const GpuWish& wish,
                                                    std::uint32_t gpus);

}  // namespace xpipe::executor
