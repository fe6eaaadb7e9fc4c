// The host and port where the ranks of a run meet, looked at with plain sockets before any library
// is asked: so that a wait for it can be interrupted, and what is wrong with it is said plainly.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "executor/processes/stops.h"
#include "ir/status.h"

namespace xpipe::executor {

struct Patience {
  std::chrono::nanoseconds time_out = std::chrono::seconds(300);
  Stops stops = {};

  /// Runtime "time-out" once `since` is longer ago than the time-out, saying what was `awaited`;
  /// Runtime "launcher-gone"; Interrupted once that is set, "terminated" by
  /// SIGTERM and "interrupted" by SIGINT.
  [[nodiscard]] ir::Status check(std::chrono::steady_clock::time_point since,
                                 const std::string& awaited) const;

  /// Why a peer or the meeting place is gone, of which `error` tells: the signal that this rank had
  /// been sent, too, or a Ctrl-C within kSignalMoment; else `error`, since a SIGTERM that comes
  /// later may be a launcher's answer.
  [[nodiscard]] ir::Error cause_of(ir::Error error) const;
};

/// Whether `port` of this machine is free. Errors: Runtime "port-in-use", naming it.
[[nodiscard]] ir::Status check_port_free(std::uint16_t port);

/// Waits until somebody listens at `host`:`port`. Errors: Runtime "time-out", naming both and why
/// the last try failed; Interrupted.
[[nodiscard]] ir::Status wait_for_listener(const std::string& host,
                                           std::uint16_t port,
                                           const Patience& patience);

}  // namespace xpipe::executor
