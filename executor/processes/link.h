// The connection to one other process: bytes in order, both ways. executor/c10d has the one over
// Gloo; tests use sockets.
//
// Thread-safety: one thread sends, another receives; abort() from any.
#pragma once

#include <cstddef>
#include <span>

#include "ir/status.h"

namespace xpipe::executor {

class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  /// Returns when `bytes` may be changed again. Blocks while the other side does not receive.
  /// Errors: Runtime, when the connection is lost or was aborted.
  virtual ir::Status send(std::span<const std::byte> bytes) = 0;

  /// Fills `bytes`, however long that takes; each call matches one send() of as many bytes.
  virtual ir::Status receive(std::span<std::byte> bytes) = 0;

  /// Ends what is under way, and all that follows, with an error.
  virtual void abort() = 0;
};

}  // namespace xpipe::executor
