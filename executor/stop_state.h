// Why a run ends early: the first failure, or a request to stop. Every backend holds one; work asks
// stopping() before each task.
//
// Thread-safe. stopping() is lock-free, so that asking costs nothing per task.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "ir/status.h"

namespace xpipe::executor {

class StopState {
 public:
  /// Forgets the failure of the run before. A stop() is not forgotten.
  void begin_run();

  /// The first error of a run wins; later ones are dropped.
  void fail(ir::Error error);

  /// fail(), for this run and all later ones.
  void stop(ir::Error reason);

  /// No further task may start.
  [[nodiscard]] bool stopping() const { return stopping_.load(std::memory_order_acquire); }

  /// OK, or the first error.
  [[nodiscard]] ir::Status status() const;

 private:
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::optional<ir::Error> first_;
  std::optional<ir::Error> stop_reason_;
};

}  // namespace xpipe::executor
