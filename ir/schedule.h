// The schedule IR: tasks, the lanes that order them, and the edges between lanes. One schedule is
// one segment of training, flat and finite, and immutable once validated (ir/validate.h); the
// simulator and the executor both take it by const reference.
//
//   lane compute 0:  0F0  0F1  ........ 0B0
//   lane send 0>1:      0SEND_F0            \   an edge joins tasks of different lanes;
//   lane receive 0>1:      1RECV_F0          >  within a lane the order says it all
//   lane compute 1:            1F0  1B0     /
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/ids.h"
#include "ir/task.h"

namespace xpipe::ir {

inline constexpr int kScheduleFormatVersion = 1;

enum class LaneKind : std::uint8_t {
  Compute,  ///< the compute lane of `device`
  Send,     ///< one direction of a link: what `device` sends to `peer`
  Receive,  ///< what `device` receives from `peer`
};

/// One thing at a time, in this order.
struct Lane {
  LaneKind kind = LaneKind::Compute;
  DeviceId device{};
  DeviceId peer{};  ///< equals `device` for a compute lane
  std::vector<TaskId> order;

  bool operator==(const Lane&) const = default;
};

/// `to` starts only after `from` has ended (plus, from a send to its receive, the link's latency).
struct Edge {
  TaskId from{};
  TaskId to{};

  bool operator==(const Edge&) const = default;
  auto operator<=>(const Edge&) const = default;
};

/// Where a stage is. A replicated stage has a device for each replica, with slots and versions of
/// its own there; micro-batch j is on one of them, forward and backward. The device of a task's
/// lane says which replica it is of (ir/replicas.h).
struct StageInfo {
  StageInfo() = default;

  StageInfo(DeviceId device, std::uint16_t slot_count) : devices{device}, slots(slot_count) {}

  StageInfo(std::vector<DeviceId> of_replicas, std::uint16_t slot_count)
      : devices(std::move(of_replicas)), slots(slot_count) {}

  std::vector<DeviceId> devices = {DeviceId{}};  ///< by replica; no device twice
  std::uint16_t slots = 1;  ///< storages of the stage's weights on each device, master included

  /// Of the first replica. Requires: a device.
  [[nodiscard]] DeviceId device() const { return devices.front(); }

  [[nodiscard]] bool is_replicated() const { return devices.size() > 1; }

  bool operator==(const StageInfo&) const = default;
};

struct Schedule {
  std::string policy;                                        ///< which policy wrote it
  std::vector<std::pair<std::string, std::string>> options;  ///< its options, sorted by name
  std::uint32_t micro_batches = 1;                           ///< T, per mini-batch
  std::uint32_t mini_batches = 0;                            ///< N, in this segment
  std::uint32_t devices = 0;
  std::vector<StageInfo> stages;  ///< by StageId
  std::vector<Task> tasks;        ///< by TaskId
  std::vector<Lane> lanes;        ///< by LaneId
  std::vector<Edge> edges;        ///< sorted, between different lanes

  [[nodiscard]] const Task& task(TaskId id) const { return tasks[index_of(id)]; }

  [[nodiscard]] const Lane& lane(LaneId id) const { return lanes[index_of(id)]; }

  [[nodiscard]] const StageInfo& stage(StageId id) const { return stages[index_of(id)]; }

  bool operator==(const Schedule&) const = default;
};

/// All heap bytes of the schedule over its tasks; 0 when it has none.
[[nodiscard]] double heap_bytes_per_task(const Schedule& schedule);

}  // namespace xpipe::ir
