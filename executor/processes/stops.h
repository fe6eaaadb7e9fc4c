// What ends a rank from outside: a signal, or the end of its launcher. And whether a peer that is
// gone is a signal's doing, too.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "executor/processes/launcher.h"

namespace xpipe::executor {

/// Ctrl-C signals all ranks, one after the other: a rank that the second one kills may be missed by
/// another before that one's own first has come. Who finds a rank gone waits for so long before it
/// calls that the cause, and looks this often.
inline constexpr std::chrono::milliseconds kSignalMoment(200);
inline constexpr std::chrono::milliseconds kSignalEvery(5);

/// Thread-safe.
struct Stops {
  /// Set by a signal handler; looked at all the time. Null: no signal is caught.
  const std::atomic<bool>* interrupted = nullptr;
  /// Which signal it was; none: SIGINT.
  std::function<int()> signal = {};
  Launcher launcher = {};

  [[nodiscard]] bool is_interrupted() const;
  [[nodiscard]] int signal_number() const;
  /// By Ctrl-C, which reaches all ranks. SIGTERM may be a launcher's answer to a rank's death.
  [[nodiscard]] bool is_ctrl_c() const;
};

}  // namespace xpipe::executor
