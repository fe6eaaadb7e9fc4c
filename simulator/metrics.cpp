#include "simulator/metrics.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "ir/task.h"
#include "scheduler/ready_tracker.h"

namespace xpipe::simulator {

namespace {

using ir::index_of;
using ir::Nanos;
using ir::TaskId;

constexpr double kNanosPerSecond = 1e9;

double ratio(Nanos part, Nanos whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

using Interval = std::pair<Nanos, Nanos>;

/// The length of the union of `intervals`, clipped to [begin, end).
Nanos covered(std::vector<Interval> intervals, Nanos begin, Nanos end) {
  std::ranges::sort(intervals);
  Nanos total = 0;
  Nanos at = begin;
  for (const auto& [from, to] : intervals) {
    const Nanos low = std::max(from, at);
    const Nanos high = std::min(to, end);
    if (high > low) {
      total += high - low;
      at = high;
    }
  }
  return total;
}

class Exposure {
 public:
  Exposure(const ir::Schedule& schedule, const ir::Timeline& timeline)
      : schedule_(schedule), timeline_(timeline), graph_(schedule) {}

  /// The part of the idle time before `task`, which begins at `idle_from`, in which a message that
  /// it waits for was under way.
  [[nodiscard]] Nanos before(TaskId task, Nanos idle_from) const {
    const Nanos start = span(task).start;
    if (start <= idle_from) {
      return 0;
    }
    std::vector<Interval> under_way;
    for (const TaskId receive : graph_.predecessors(task)) {
      if (schedule_.task(receive).kind() != ir::TaskKind::Receive) {
        continue;
      }
      for (const TaskId send : graph_.predecessors(receive)) {
        if (schedule_.task(send).kind() == ir::TaskKind::Send) {
          under_way.emplace_back(ready(send), span(receive).end);
        }
      }
    }
    return covered(std::move(under_way), idle_from, start);
  }

 private:
  [[nodiscard]] const ir::Span& span(TaskId id) const { return timeline_.spans[index_of(id)]; }

  /// When the data of `send` was there, whether its lane was free or not.
  [[nodiscard]] Nanos ready(TaskId send) const {
    Nanos at = 0;
    for (const TaskId before : graph_.predecessors(send)) {
      if (schedule_.task(before).lane != schedule_.task(send).lane) {
        at = std::max(at, span(before).end);
      }
    }
    return at;
  }

  const ir::Schedule& schedule_;
  const ir::Timeline& timeline_;
  scheduler::TaskGraph graph_;
};

DeviceUse use_of(const ir::Lane& lane, const ir::Timeline& timeline, const Exposure& exposure) {
  DeviceUse use;
  Nanos idle_from = 0;
  for (const TaskId id : lane.order) {
    const ir::Span& span = timeline.spans[index_of(id)];
    use.busy += span.end - span.start;
    use.exposed_communication += exposure.before(id, idle_from);
    idle_from = span.end;
  }
  if (!lane.order.empty()) {
    use.first_start = timeline.spans[index_of(lane.order.front())].start;
    use.last_end = idle_from;
  }
  return use;
}

LinkUse use_of(const ir::Schedule& schedule, const ir::Lane& lane, const ir::Timeline& timeline) {
  LinkUse use{.from = lane.device, .to = lane.peer};
  for (const TaskId id : lane.order) {
    const ir::Bytes bytes = std::get<ir::Send>(schedule.task(id).payload).bytes;
    const ir::Span& span = timeline.spans[index_of(id)];
    ++use.transfers;
    use.bytes += std::max<ir::Bytes>(bytes, 0);
    use.busy += span.end - span.start;
  }
  return use;
}

void add_bubbles(Metrics& metrics) {
  Nanos busy = 0;
  Nanos exposed = 0;
  const DeviceUse* longest = nullptr;
  const auto length = [](const DeviceUse& use) { return use.last_end - use.first_start; };
  for (DeviceUse& device : metrics.devices) {
    device.utilization = ratio(device.busy, metrics.makespan);
    busy += device.busy;
    exposed += device.exposed_communication;
    if (longest == nullptr || length(device) > length(*longest)) {
      longest = &device;
    }
  }
  const Nanos total = static_cast<Nanos>(metrics.devices.size()) * metrics.makespan;
  metrics.bubble_of_total = ratio(total - busy, total);
  metrics.bubble_of_ideal = ratio(total - busy, busy);
  metrics.exposed_of_total = ratio(exposed, total);
  if (longest != nullptr) {
    metrics.bubble_of_longest = ratio(length(*longest) - longest->busy, length(*longest));
  }
}

}  // namespace

Metrics measure(const ir::Schedule& schedule, const ir::Timeline& timeline) {
  Metrics metrics;
  metrics.makespan = ir::makespan(timeline);
  metrics.devices.resize(schedule.devices);
  const Exposure exposure(schedule, timeline);
  for (const ir::Lane& lane : schedule.lanes) {
    switch (lane.kind) {
      case ir::LaneKind::Compute:
        metrics.devices[index_of(lane.device)] = use_of(lane, timeline, exposure);
        break;
      case ir::LaneKind::Send:
        metrics.links.push_back(use_of(schedule, lane, timeline));
        metrics.transfers += metrics.links.back().transfers;
        metrics.bytes += metrics.links.back().bytes;
        break;
      case ir::LaneKind::Receive:  // counted where they are sent
        break;
    }
  }
  add_ratios(metrics);
  return metrics;
}

void add_ratios(Metrics& metrics) {
  for (LinkUse& link : metrics.links) {
    link.utilization = ratio(link.busy, metrics.makespan);
  }
  add_bubbles(metrics);
}

std::optional<double> samples_per_second(double samples, Nanos period) {
  if (period <= 0) {
    return std::nullopt;
  }
  return samples * kNanosPerSecond / static_cast<double>(period);
}

}  // namespace xpipe::simulator
