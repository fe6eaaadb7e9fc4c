#include "simulator/memory.h"

#include <algorithm>
#include <numeric>

#include "ir/status.h"
#include "ir/task.h"
#include "simulator/memory_events.h"

namespace xpipe::simulator {

namespace {

using ir::Bytes;
using ir::index_of;
using ir::Nanos;
using ir::TaskId;
using std::size_t;

DeviceMemory replay_events(const MemoryBytes& always,
                           const std::vector<MemoryEvent>& events,
                           MemoryCurve curve) {
  DeviceMemory memory;
  MemoryBytes now = always;
  memory.curve.push_back({0, now});
  memory.peak_by_kind = now;
  memory.at_peak = now;
  memory.peak = sum_of(now);
  Bytes sum = memory.peak;
  for (size_t i = 0; i < events.size(); ++i) {
    const MemoryEvent& event = events[i];
    now[static_cast<size_t>(event.kind)] += event.bytes;
    sum += event.bytes;
    const bool is_last = i + 1 == events.size() || events[i + 1].time != event.time;
    if (is_last || events[i + 1].phase != event.phase) {
      for (size_t kind = 0; kind < kMemoryKinds; ++kind) {
        memory.peak_by_kind[kind] = std::max(memory.peak_by_kind[kind], now[kind]);
      }
      if (sum > memory.peak) {
        memory.peak = sum;
        memory.at_peak = now;
        memory.peak_time = event.time;
      }
    }
    if (is_last && curve == MemoryCurve::Keep) {
      if (memory.curve.back().time == event.time) {
        memory.curve.back().bytes = now;
      } else if (memory.curve.back().bytes != now) {
        memory.curve.push_back({event.time, now});
      }
    }
  }
  XPIPE_CHECK(now == always) << "memory was taken and not given back";
  return memory;
}

}  // namespace

Bytes sum_of(const MemoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), Bytes{0});
}

std::string_view memory_kind_name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::Weights:
      return "weights";
    case MemoryKind::Slots:
      return "slots";
    case MemoryKind::Gradients:
      return "gradients";
    case MemoryKind::Optimizer:
      return "optimizer";
    case MemoryKind::Activations:
      return "activations";
    case MemoryKind::Buffers:
      return "buffers";
    case MemoryKind::Workspace:
      return "workspace";
  }
  return "unknown";
}

std::vector<DeviceMemory> memory_over_time(const ir::Schedule& schedule,
                                           const ir::Timeline& timeline,
                                           const scheduler::CostModel& costs,
                                           MemoryCurve curve) {
  std::vector<DeviceMemory> devices;
  devices.reserve(schedule.devices);
  for_each_device(schedule, timeline, costs,
                  [&](const MemoryBytes& always, const std::vector<MemoryEvent>& events) {
                    devices.push_back(replay_events(always, events, curve));
                  });
  return devices;
}

std::vector<std::uint32_t> peak_in_flight(const ir::Schedule& schedule) {
  std::vector<std::uint32_t> peak(schedule.stages.size(), 0);
  std::vector<std::uint32_t> now(schedule.stages.size(), 0);
  for (const ir::Lane& lane : schedule.lanes) {
    for (const TaskId id : lane.order) {
      const ir::Task& task = schedule.task(id);
      const size_t k = index_of(task.stage);
      if (task.kind() == ir::TaskKind::Forward) {
        peak[k] = std::max(peak[k], ++now[k]);
      } else if (task.kind() == ir::TaskKind::Backward ||
                 task.kind() == ir::TaskKind::BackwardInput) {
        --now[k];
      }
    }
  }
  return peak;
}

}  // namespace xpipe::simulator
