// The fused prediction (executor/prediction_kernel.h) for LibTorch's tensors on the CPU: chunks are
// shared out to the intra-op threads that the calling thread may use. Any number gives the same
// bits.
#pragma once

#include <torch/torch.h>

#include "executor/prediction_kernel.h"

namespace xpipe::executor::nn {

/// For tensors in the CPU's memory.
[[nodiscard]] PredictionKernel cpu_prediction_kernel();

/// Throws c10::Error for types that no slot has.
[[nodiscard]] Number number_of(torch::Dtype type);

/// What a kernel may read. Throws c10::Error when `tensor` is not contiguous.
[[nodiscard]] const void* memory_of(const torch::Tensor& tensor);

}  // namespace xpipe::executor::nn
