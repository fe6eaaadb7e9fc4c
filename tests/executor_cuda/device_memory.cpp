#include "tests/executor_cuda/device_memory.h"

#include <iostream>

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include "executor/cuda/cuda_api.h"

namespace xpipe::tests {

bool skips_without_gpu() {
  const auto gpus = executor::cuda_gpus();
  if (!gpus.ok()) {
    std::cout << "[SKIPPED] " << gpus.error().diagnostics[0].message << "\n";
  }
  return !gpus.ok();
}

void check_cuda(int error, const char* call) {
  REQUIRE_MESSAGE(error == cudaSuccess, call, ": ",
                  cudaGetErrorString(static_cast<cudaError_t>(error)));
}

DeviceMemory::DeviceMemory(std::size_t bytes, std::size_t skew) : bytes_(bytes) {
  check_cuda(cudaMalloc(&allocated_, bytes + skew + 16), "cudaMalloc");
  memory_ = static_cast<char*>(allocated_) + 16 + skew;
  check_cuda(cudaMemset(memory_, 0, bytes), "cudaMemset");
  // Streams of the backend do not wait for the default stream.
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

DeviceMemory::~DeviceMemory() {
  (void)cudaFree(allocated_);
}

void DeviceMemory::upload(std::span<const std::byte> bytes) {
  check_cuda(cudaMemcpy(memory_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
}

std::vector<std::byte> DeviceMemory::download() const {
  std::vector<std::byte> bytes(bytes_);
  check_cuda(cudaMemcpy(bytes.data(), memory_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return bytes;
}

}  // namespace xpipe::tests
