// `--device cuda`: the GPUs of a training and the backend on them. Without CUDA built in, the same
// function says so (no_gpu_device.cpp).
#pragma once

#include <memory>

#include "executor/device.h"
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

  GpuDevice() = default;
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;
  virtual ~GpuDevice() = default;

  [[nodiscard]] virtual executor::Backend& backend() = 0;
};

}  // namespace xpipe::app
