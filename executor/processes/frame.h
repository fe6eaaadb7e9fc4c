// What travels on a link: a head of fixed size that says what follows, then the tensors that do not
// fit into it. Small messages are one piece, so that most of them cost one hand-over.
//
//   | magic kind segment task tensors | type dims sizes bytes | ... | small tensors' bytes |  1 KiB
//   | bytes of the first large tensor, in pieces of kPieceBytes |
//
// Numbers are in the machine's order: all ranks of a run are one build on one kind of machine, and
// a head with another magic is refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "executor/parcel.h"
#include "ir/status.h"

namespace xpipe::executor {

enum class FrameKind : std::uint8_t {
  Beat,    ///< nothing new, but alive
  Done,    ///< a task is done; its mail
  Part,    ///< the first tensors of a frame that has too many; others follow at once
  Plain,   ///< a message at a drained border
  Failed,  ///< the first failure that the sender knows of; its last frame
  Bye,     ///< all is done; its last frame
};

struct Frame {
  FrameKind kind = FrameKind::Beat;
  std::uint32_t segment = 0;  ///< Done, Part: which run of a schedule, counted from 1; 0: none
  std::uint32_t task = 0;     ///< Done, Part: the TaskId
  Parcel parcel;
};

inline constexpr std::size_t kHeadBytes = 1024;
/// Large enough to cost little, small enough to see that a slow transfer moves.
inline constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMaxTensors = 8;
inline constexpr std::size_t kMaxDimensions = 8;
/// No tensor is larger; a head that says so is damaged.
inline constexpr std::uint64_t kMaxTensorBytes = std::uint64_t{1} << 40;

using Head = std::array<std::byte, kHeadBytes>;

/// Whether the tensors travel within the head.
[[nodiscard]] bool fits_in_head(const Parcel& parcel);

/// `frame` as frames of at most kMaxTensors tensors each: Parts, and what is left as what it was.
[[nodiscard]] std::vector<Frame> in_parts(Frame frame);

/// Requires: at most kMaxTensors tensors of at most kMaxDimensions dimensions.
[[nodiscard]] Head encode_head(const Frame& frame);

/// The frame as far as the head has it. `follow`: its tensors have memory of their own, to be
/// filled through `memory`; else they are complete.
struct DecodedHead {
  Frame frame;
  bool follow = false;
  std::vector<std::byte*> memory;  ///< by tensor
};

/// What the head says, without any memory. Errors: Runtime "bad-frame".
[[nodiscard]] ir::Result<DecodedHead> describe_head(const Head& head);

/// Memory for the tensors of what describe_head() returned, filled where the head has them. Throws
/// std::bad_alloc.
void give_memory(const Head& head, DecodedHead& decoded);

/// Both.
[[nodiscard]] ir::Result<DecodedHead> decode_head(const Head& head);

}  // namespace xpipe::executor
