// What goes with a message between processes: tensors as plain memory, and who keeps that memory.
// A Mail turns tasks into parcels and back; it is the training's side of a transport, as
// RemoteTasks is the engine's. No torch here.
//
// Ownership: `owner` keeps `data`; nobody writes to it while a parcel refers to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/ids.h"
#include "ir/status.h"

namespace xpipe::executor {

/// One dense tensor, row-major.
struct PackedTensor {
  std::uint8_t type = 0;  ///< c10::ScalarType, or 0 for plain bytes
  std::vector<std::int64_t> sizes;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<const void> owner;
};

struct Parcel {
  std::vector<PackedTensor> tensors;
};

/// A parcel of one tensor of plain bytes.
[[nodiscard]] Parcel parcel_of(std::string bytes);

/// All bytes of a parcel, one tensor after the other.
[[nodiscard]] std::string bytes_of(const Parcel& parcel);

/// Thread-safe: both are called from the transport's and the lanes' threads.
class Mail {
 public:
  Mail() = default;
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;
  virtual ~Mail() = default;

  /// What goes with the news that the local `task` is done, to every process that waits for it;
  /// absent: the news alone. Called once a task.
  [[nodiscard]] virtual std::optional<Parcel> collect(ir::TaskId task) = 0;

  /// What came with the news that the remote `task` is done, before its event completes.
  /// Errors: Runtime, when it is not what the schedule says.
  [[nodiscard]] virtual ir::Status deliver(ir::TaskId task, Parcel parcel) = 0;
};

}  // namespace xpipe::executor
