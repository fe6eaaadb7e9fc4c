// The fused prediction on a GPU: bit for bit what predict_on_cpu() gives (executor/
// prediction_kernel.h says why), apart from the payload of what is no number.
#pragma once

#include <functional>

#include "executor/gpu_api.h"
#include "executor/prediction_kernel.h"

namespace xpipe::executor {

/// Launches on the stream that `stream` gives when it is called; does not wait for it. All memory
/// of a call is on that stream's GPU. The kernel throws std::runtime_error when a launch fails.
[[nodiscard]] PredictionKernel cuda_prediction_kernel(std::function<GpuStream()> stream);

}  // namespace xpipe::executor
