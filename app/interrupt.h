// SIGINT and SIGTERM while a run lasts: asks it to stop and remembers which signal it was, so that
// the exit status is 130 or 143. The second Ctrl-C ends the process at once.
#pragma once

#include <atomic>

namespace xpipe::app {

/// Catches the signals while it lives; one at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

  /// Set once a signal has come; lives as long as the process.
  [[nodiscard]] static const std::atomic<bool>& interrupted();

  /// 130 after SIGINT, 143 after SIGTERM.
  [[nodiscard]] static int exit_status();
};

}  // namespace xpipe::app
