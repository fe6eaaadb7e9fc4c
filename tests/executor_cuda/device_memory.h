// Memory of GPU 0 for tests, and whether there is such a GPU.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace xpipe::tests {

/// Prints "[SKIPPED] no CUDA device: ..." where there is none; ctest counts that.
[[nodiscard]] bool skips_without_gpu();

/// `bytes` on GPU 0, zero at first, from 16 bytes after a boundary of 256 plus `skew`.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes, std::size_t skew = 0);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  void upload(std::span<const std::byte> bytes);
  [[nodiscard]] std::vector<std::byte> download() const;

  [[nodiscard]] void* at() const { return memory_; }

 private:
  void* allocated_ = nullptr;
  void* memory_ = nullptr;
  std::size_t bytes_;
};

/// Fails the test unless the call worked.
void check_cuda(int error, const char* call);

}  // namespace xpipe::tests
