#include "app/gpu_device.h"

namespace xpipe::app {

ir::Result<std::unique_ptr<GpuDevice>> GpuDevice::open(executor::nn::TrainConfig& /*config*/) {
  return ir::make_error(ir::ErrorKind::Usage, "no-cuda-device", "--device",
                        "no CUDA device: this xpipe was built without CUDA; build it where nvcc "
                        "is, with ./dev build --preset cuda, or use --device cpu");
}

}  // namespace xpipe::app
