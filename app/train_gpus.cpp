#include "app/train_gpus.h"

#include <cstdlib>

#include "executor/gpu_channels.h"
#include "executor/processes/gpu_places.h"

namespace xpipe::app {

namespace {

std::uint32_t devices_of(const TrainRequest& request) {
  return request.passes.layout ? request.passes.layout->devices : request.config.stages;
}

executor::GpuWish wish_of(const TrainRequest& request) {
  // Nobody sets it meanwhile.
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");  // NOLINT(concurrency-mt-unsafe)
  return {.devices = devices_of(request),
          .map = request.config.compute.gpus,
          .narrowed = visible != nullptr};
}

/// A kernel of NCCL waits for its other end; one that stood behind it in a queue of the hardware,
/// on another stream, would wait, too. There are 32 queues, and CUDA takes 8 unless told otherwise.
void ask_for_queues() {
  // No thread has been started yet, and CUDA reads it when it is first called.
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace

ir::Status check_nccl(const executor::LaunchEnvironment& launch, const TrainRequest& request) {
  const executor::GpuWish wish = wish_of(request);
  if (ir::Status status = executor::check_map_for_nccl(launch, wish); !status.ok()) {
    return status;
  }
  ask_for_queues();
  const ir::Result<std::uint32_t> gpus = GpuDevice::count("--transport");
  if (!gpus.ok()) {
    return gpus.status();
  }
  if (ir::Status built = NcclWay::check_built(); !built.ok()) {
    return built;
  }
  if (request.config.device != executor::nn::TrainDevice::Cuda) {
    return ir::make_error(ir::ErrorKind::Usage, "options", "--transport",
                          "nccl moves tensors between GPUs, and the device is another; use "
                          "--device cuda, or --transport gloo");
  }
  return executor::check_gpus_for_nccl(launch, wish, gpus.value());
}

ir::Status place_gpus(const executor::LaunchEnvironment& launch, TrainRequest& request) {
  const ir::Result<std::uint32_t> gpus = GpuDevice::count("--device");
  if (!gpus.ok()) {
    return gpus.status();
  }
  request.config.compute.gpus = executor::gpu_places(launch, wish_of(request), gpus.value());
  return {};
}

ir::Status check_channels(const ir::Schedule& schedule, const executor::Peers& peers) {
  return executor::gpu_channels(schedule,
                                [&](ir::DeviceId device) { return peers.rank_of(device); })
      .status();
}

}  // namespace xpipe::app
