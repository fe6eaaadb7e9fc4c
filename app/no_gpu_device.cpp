#include "app/gpu_device.h"

namespace xpipe::app {

ir::Result<std::uint32_t> GpuDevice::count(const char* option) {
  return ir::make_error(ir::ErrorKind::Usage, "no-cuda-device", option,
                        "no CUDA device: this xpipe was built without CUDA; build it where nvcc "
                        "is, with ./dev build --preset cuda, or use --device cpu (with several "
                        "processes, --transport gloo)");
}

ir::Result<std::unique_ptr<GpuDevice>> GpuDevice::open(executor::nn::TrainConfig& /*config*/) {
  return count("--device").error();
}

}  // namespace xpipe::app
