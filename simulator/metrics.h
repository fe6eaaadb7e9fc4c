// What a timeline amounts to: how busy each device was, where it waited, what went over the links.
// Definitions are design.md §10's; all are over the whole segment simulated.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/timeline.h"

namespace xpipe::simulator {

struct DeviceUse {
  ir::Nanos busy = 0;        ///< of its compute lane: predictions, steps and overhead included
  double utilization = 0.0;  ///< busy over makespan; 0 when nothing takes time
  ir::Nanos first_start = 0;
  ir::Nanos last_end = 0;
  /// Of the compute lane's idle time, the part in which the message that its next task waits for
  /// was ready to go or on its way: what faster links could save.
  ir::Nanos exposed_communication = 0;
};

/// One direction of a link.
struct LinkUse {
  ir::DeviceId from{};
  ir::DeviceId to{};
  std::uint64_t transfers = 0;
  ir::Bytes bytes = 0;  ///< unknown bytes count as 0
  ir::Nanos busy = 0;
  double utilization = 0.0;  ///< busy over makespan; 0 when nothing takes time

  bool operator==(const LinkUse&) const = default;
};

struct Metrics {
  ir::Nanos makespan = 0;
  std::vector<DeviceUse> devices;  ///< by DeviceId
  std::vector<LinkUse> links;      ///< in the order of the schedule's lanes
  std::uint64_t transfers = 0;
  ir::Bytes bytes = 0;

  /// Idle time of compute lanes over devices * makespan.
  double bubble_of_total = 0.0;
  /// The same idle time over the busy time; 0 when no device is ever busy.
  double bubble_of_ideal = 0.0;
  /// 1 - busy / (last end - first start) of the device with the longest such span (of equals the
  /// first): the zero-bubble paper's.
  double bubble_of_longest = 0.0;
  /// Exposed communication of all devices over devices * makespan: a part of bubble_of_total.
  double exposed_of_total = 0.0;
};

/// Requires: a legal schedule and a timeline of it, planned or measured.
[[nodiscard]] Metrics measure(const ir::Schedule& schedule, const ir::Timeline& timeline);

/// Works out the shares (utilization, bubbles) from the times. measure() has done it.
void add_ratios(Metrics& metrics);

/// Samples in a second when `samples` take `period`; absent when they take no time.
[[nodiscard]] std::optional<double> samples_per_second(double samples, ir::Nanos period);

}  // namespace xpipe::simulator
