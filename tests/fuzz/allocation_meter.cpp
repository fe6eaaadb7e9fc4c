#include "tests/fuzz/allocation_meter.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include <malloc.h>

namespace {

// Plain variables: the meter is for one thread, and must work before any constructor has run.
bool counting = false;
std::size_t held = 0;
std::size_t peak = 0;
std::size_t total = 0;

void* counted(std::size_t size) {
  void* memory = std::malloc(std::max<std::size_t>(size, 1));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  if (counting) {
    const std::size_t bytes = malloc_usable_size(memory);
    held += bytes;
    total += bytes;
    peak = std::max(peak, held);
  }
  return memory;
}

void uncounted(void* memory) {
  if (counting && memory != nullptr) {
    held -= std::min(held, malloc_usable_size(memory));
  }
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size);
}

void* operator new[](std::size_t size) {
  return counted(size);
}

void operator delete(void* memory) noexcept {
  uncounted(memory);
}

void operator delete[](void* memory) noexcept {
  uncounted(memory);
}

void operator delete(void* memory, std::size_t /*size*/) noexcept {
  uncounted(memory);
}

void operator delete[](void* memory, std::size_t /*size*/) noexcept {
  uncounted(memory);
}

namespace xpipe::fuzz {

AllocationMeter::AllocationMeter() {
  held = peak = total = 0;
  counting = true;
}

AllocationMeter::~AllocationMeter() {
  counting = false;
}

HeapUse AllocationMeter::use() const {
  return {peak, total};
}

}  // namespace xpipe::fuzz
