// LibTorch on GPUs, for whoever makes the backend: no torch in this header.
//
// XPipe links LibTorch's CPU libraries only, so that it starts fast and where no CUDA library is.
// load_cuda() loads the rest when a GPU is asked for.
#pragma once

#include "executor/gpu_api.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

/// Loads LibTorch's CUDA library. To be called once, before any tensor is made. Errors: Usage
/// "no-cuda-library", with what the loader says: the libraries it needs come with PyTorch's wheel
/// of the same version.
[[nodiscard]] ir::Status load_cuda();

/// What this thread's tensor operations on `stream`'s GPU launch goes to `stream` from here on, and
/// that GPU is the current one. Requires: load_cuda(). Throws what LibTorch throws.
void use_gpu_stream(GpuStream stream);

}  // namespace xpipe::executor::nn
