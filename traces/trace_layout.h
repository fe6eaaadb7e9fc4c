// What writer and reader of our traces must agree on: ids, names and the facts told of a task.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/task.h"

namespace xpipe::traces {

inline constexpr std::string_view kTraceFormat = "xpipe.trace";

/// A viewer's ids are positive.
[[nodiscard]] constexpr std::int64_t pid_of(ir::DeviceId device) {
  return std::int64_t{ir::index_of(device)} + 1;
}

/// Unique over the file. `lane` is an index into Schedule::lanes.
[[nodiscard]] constexpr std::int64_t tid_of(std::size_t lane) {
  return static_cast<std::int64_t>(lane) + 1;
}

/// "compute", "send", "receive".
[[nodiscard]] std::string_view lane_kind_name(ir::LaneKind kind);

/// What a slice's args say beside the task's id and times, in this order: stage; micro_batch or
/// mini_batch; slot, version and distance of the weights read; from_slot, into_slot of the weights
/// written; peer and bytes of a message.
using Facts = std::vector<std::pair<std::string_view, std::int64_t>>;
[[nodiscard]] Facts facts_of(const ir::Task& task);

}  // namespace xpipe::traces
