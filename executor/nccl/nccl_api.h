// What nccl_transport.h needs of NCCL: connections of two ranks in one direction, made without
// blocking, and transfers on a stream. The real one loads libnccl when it is asked for; tests have
// one of lists, so that all that decides is tested without NCCL and without a GPU.
//
// Errors: Runtime "nccl", with the call and what NCCL says. Thread-safety: one thread at a time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "executor/gpu_api.h"
#include "ir/status.h"

namespace xpipe::executor {

/// Names one connection; made by one side, told to the other.
using NcclId = std::array<std::byte, 128>;

/// Handles are the library's; whoever connected destroys or aborts.
struct NcclConnection {
  void* handle = nullptr;
};

class NcclApi {
 public:
  NcclApi() = default;
  NcclApi(const NcclApi&) = delete;
  NcclApi& operator=(const NcclApi&) = delete;
  virtual ~NcclApi() = default;

  /// "2.28.9", as printed.
  [[nodiscard]] virtual std::string version() const = 0;

  /// The same text for the same piece of hardware only, whichever process asks.
  [[nodiscard]] virtual ir::Result<std::string> identity(std::uint32_t gpu) = 0;

  [[nodiscard]] virtual ir::Result<NcclId> new_id() = 0;

  /// Begins to connect the side that `sends`, or the other one, on `gpu`. Does not wait.
  [[nodiscard]] virtual ir::Result<NcclConnection> connect(const NcclId& id,
                                                           bool sends,
                                                           std::uint32_t gpu) = 0;

  /// Whether both sides are connected and a first transfer has come through, so that nothing is set
  /// up during a step. Goes on with what is to be done; does not wait.
  [[nodiscard]] virtual ir::Result<bool> is_ready(NcclConnection connection) = 0;

  /// Whether NCCL knows of a failure. Requires: ready. Does not block.
  [[nodiscard]] virtual ir::Status check(NcclConnection connection) = 0;

  /// On `stream`, of the connection's GPU. Requires: ready; this side sends.
  virtual ir::Status send(NcclConnection connection,
                          const void* data,
                          std::size_t bytes,
                          GpuStream stream) = 0;
  /// Requires: ready; this side receives.
  virtual ir::Status receive(NcclConnection connection,
                             void* data,
                             std::size_t bytes,
                             GpuStream stream) = 0;

  /// The good end: nothing is under way.
  virtual void destroy(NcclConnection connection) = 0;
  /// The bad end: ends what is under way on the GPU.
  virtual void abort(NcclConnection connection) = 0;
};

/// Loads libnccl.so.2: LibTorch's, where it is loaded already, else what the loader finds. Errors:
/// Usage "no-nccl", saying what is missing or too old.
[[nodiscard]] ir::Result<std::unique_ptr<NcclApi>> load_nccl(std::chrono::nanoseconds time_out);

}  // namespace xpipe::executor
