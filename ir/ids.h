// Ids and units of the schedule IR: every count is a type of its own, so that a stage cannot be
// passed where a device is meant. All counting is 0-based (design.md §10).
#pragma once

#include <cstdint>
#include <type_traits>

namespace xpipe::ir {

/// A stretch of consecutive layers; stage 0 holds the input, the last stage the loss.
enum class StageId : std::uint16_t {};
/// Where stages run.
enum class DeviceId : std::uint16_t {};
/// A storage of one stage's parameters; slot 0 is the master weights.
enum class SlotId : std::uint16_t {};
/// A resource that does one thing at a time; an index into Schedule::lanes.
enum class LaneId : std::uint32_t {};
/// An index into Schedule::tasks: the same task in IR, timeline, trace and error message.
enum class TaskId : std::uint32_t {};
/// Counts over the whole segment; micro-batch j belongs to mini-batch j / T.
enum class MicroBatch : std::uint32_t {};
/// T micro-batches; counts from the start of the segment.
enum class MiniBatch : std::uint32_t {};

inline constexpr SlotId kMasterSlot{0};

/// Number of optimizer steps applied to a stage's weights since the start of the segment.
using Version = std::uint32_t;
/// How many optimizer steps ahead predicted weights aim.
using Distance = std::uint16_t;
/// Integer nanoseconds: the only time inside.
using Nanos = std::int64_t;
using Bytes = std::int64_t;

/// The number behind an id, for indexing and printing.
template <typename Id>
  requires std::is_enum_v<Id>
constexpr std::underlying_type_t<Id> index_of(Id id) {
  return static_cast<std::underlying_type_t<Id>>(id);
}

}  // namespace xpipe::ir
