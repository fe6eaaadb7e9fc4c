// The gpu backend's needs (executor/gpu_api.h) on the CUDA runtime. No header of CUDA in sight, and
// the runtime is linked statically: a binary with it starts on machines that have neither driver
// nor GPU, where cuda_gpus() says what is missing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/gpu_api.h"
#include "ir/status.h"

namespace xpipe::executor {

struct CudaGpu {
  std::string name;
  std::int64_t memory_bytes = 0;
};

/// What CUDA shows this process. Errors: Usage "no-cuda-device", saying why there is none: no
/// driver, none that is visible (CUDA_VISIBLE_DEVICES), or a driver too old.
[[nodiscard]] ir::Result<std::vector<CudaGpu>> cuda_gpus();

/// For all GPUs of cuda_gpus(). Lets each reach the others' memory where the hardware can, so that
/// copies between them need no detour over the host. Errors: as cuda_gpus().
[[nodiscard]] ir::Result<std::unique_ptr<GpuApi>> make_cuda_api();

}  // namespace xpipe::executor
