// How many bytes a piece of code asks of the heap. The test program's operator new and delete count
// (allocation_meter.cpp replaces them), so that a reader that believes a file's "4000000000" is
// caught by the number, not by the machine running out of memory.
#pragma once

#include <cstddef>

namespace xpipe::fuzz {

struct HeapUse {
  std::size_t peak = 0;   ///< most bytes held at once
  std::size_t total = 0;  ///< all bytes asked for: a measure of work that no clock disturbs
};

/// Counts from its construction on. One at a time, in one thread; what is freed but was allocated
/// before does not count below zero.
class AllocationMeter {
 public:
  AllocationMeter();
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;
  ~AllocationMeter();

  [[nodiscard]] HeapUse use() const;
};

}  // namespace xpipe::fuzz
