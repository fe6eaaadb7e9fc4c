// What the gpu backend needs of a vendor: streams that run in order, events on them, and the time
// between two events. executor/cuda implements it on the CUDA runtime, tests on a clock of their
// own, so that everything above it is tested on machines without a GPU.
//
// Errors: Runtime, with what the vendor says. After one that a kernel caused every later call may
// fail. Thread-safety: one thread at a time.
#pragma once

#include <cstdint>

#include "ir/status.h"
#include "ir/timeline.h"

namespace xpipe::executor {

/// Handles are the vendor's; whoever created one destroys it.
struct GpuStream {
  std::uint32_t gpu = 0;
  void* handle = nullptr;
};

struct GpuEvent {
  std::uint32_t gpu = 0;
  void* handle = nullptr;
};

class GpuApi {
 public:
  GpuApi() = default;
  GpuApi(const GpuApi&) = delete;
  GpuApi& operator=(const GpuApi&) = delete;
  virtual ~GpuApi() = default;

  /// "cuda", as printed.
  [[nodiscard]] virtual const char* name() const = 0;

  /// How many there are.
  [[nodiscard]] virtual std::uint32_t gpus() const = 0;

  [[nodiscard]] virtual ir::Result<GpuStream> create_stream(std::uint32_t gpu) = 0;
  virtual void destroy(GpuStream stream) = 0;

  /// One that takes the time.
  [[nodiscard]] virtual ir::Result<GpuEvent> create_event(std::uint32_t gpu) = 0;
  virtual void destroy(GpuEvent event) = 0;

  /// Puts `event` behind everything on `stream`. Requires: of one GPU.
  [[nodiscard]] virtual ir::Status record(GpuEvent event, GpuStream stream) = 0;

  /// What comes on `stream` from here on starts after `event`, of whichever GPU.
  [[nodiscard]] virtual ir::Status wait(GpuStream stream, GpuEvent event) = 0;

  /// Whether everything before `event` is done. Does not block.
  [[nodiscard]] virtual ir::Result<bool> is_done(GpuEvent event) = 0;

  /// Requires: both done, of one GPU, `from` before `to`.
  [[nodiscard]] virtual ir::Result<ir::Nanos> between(GpuEvent from, GpuEvent to) = 0;
};

}  // namespace xpipe::executor
