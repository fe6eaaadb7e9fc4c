// `--device cuda`: the GPUs of a training and the backend on them. Without CUDA built in, the same
// function says so (no_gpu_device.cpp).
#pragma once

#include <cstdint>
#include <memory>

#include "executor/device.h"
#include "executor/gpu_transport.h"
#include "executor/torch/train_config.h"
#include "ir/status.h"

namespace xpipe::app {

/// Must outlive the trainer that was made with the configuration.
class GpuDevice {
 public:
  /// Finds the GPUs, loads LibTorch's part for them, and completes config.compute: the map, where
  /// none was given, and the prediction's kernel. To be called before a trainer is created. Errors:
  /// Usage "no-cuda-device", "no-such-gpu", "no-cuda-library".
  [[nodiscard]] static ir::Result<std::unique_ptr<GpuDevice>> open(
      executor::nn::TrainConfig& config);

  /// How many CUDA shows this process; `option` is what asked for them. Errors: Usage
  /// "no-cuda-device", naming it.
  [[nodiscard]] static ir::Result<std::uint32_t> count(const char* option);

  GpuDevice() = default;
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;
  virtual ~GpuDevice() = default;

  [[nodiscard]] virtual executor::Backend& backend() = 0;

  /// Lets messages to other processes go over `transport`, which must outlive the trainer.
  [[nodiscard]] virtual executor::GpuWay use(executor::GpuTransport& transport) = 0;
};

}  // namespace xpipe::app
