// What carries bytes from a GPU of this process to one of another, from stream to stream and
// without the host. executor/nccl has the real one; tests have one of memory and lists.
//
//   rank 0   send lane's stream      ... send(0 -> 1) ~~~~~~~~~ GPU to GPU ~~~~~~~~~~~
//   rank 1   receive lane's stream                    ... receive(0 -> 1), launched when rank 0's
//                                                         news of the launch has come
//
// One direction of a pair of devices is a channel of its own: what is sent in one order there is
// received in the same. The two ends of a transfer meet on the GPUs, so a send is over only when
// its receive is; it is told to the other rank when it is launched, not when it is over.
//
// Errors: Runtime, with what the vendor says. Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <functional>

#include "executor/gpu_api.h"
#include "ir/ids.h"
#include "ir/status.h"

namespace xpipe::executor {

class GpuTransport {
 public:
  GpuTransport() = default;
  GpuTransport(const GpuTransport&) = delete;
  GpuTransport& operator=(const GpuTransport&) = delete;
  virtual ~GpuTransport() = default;

  /// Puts the sending of `bytes` at `data`, on the stream's GPU, behind what is on `stream`. The
  /// memory is read until then. Requires: `from` is of this process, `to` of another.
  virtual ir::Status send(ir::DeviceId from,
                          ir::DeviceId to,
                          const void* data,
                          std::size_t bytes,
                          GpuStream stream) = 0;

  /// The other end. Requires: the other way round.
  virtual ir::Status receive(
      ir::DeviceId from, ir::DeviceId to, void* data, std::size_t bytes, GpuStream stream) = 0;

  /// Whether all connections are well, as far as is known. Does not block.
  [[nodiscard]] virtual ir::Status check() = 0;

  /// Ends what is under way on the GPUs; what is asked for after it fails.
  virtual void abort() = 0;
};

/// How handlers use one: the way, and the stream that they launch on.
struct GpuWay {
  GpuTransport* transport = nullptr;  ///< none: messages go through the host
  std::function<GpuStream()> stream;
};

}  // namespace xpipe::executor
