#include "simulator/memory_limit.h"

#include <set>
#include <string>

#include "ir/decimal.h"

namespace xpipe::simulator {

namespace {

using ir::Bytes;
using ir::index_of;
using std::size_t;

/// "device 1, stages 1, 2"
std::string place_of(const ir::Schedule& schedule, size_t device) {
  std::set<ir::StageId> stages;
  for (const ir::Lane& lane : schedule.lanes) {
    if (lane.kind == ir::LaneKind::Compute && index_of(lane.device) == device) {
      for (const ir::TaskId id : lane.order) {
        stages.insert(schedule.task(id).stage);
      }
    }
  }
  std::string text =
      "device " + std::to_string(device) + (stages.size() == 1 ? ", stage" : ", stages");
  for (const ir::StageId stage : stages) {
    text += (stage == *stages.begin() ? " " : ", ") + std::to_string(index_of(stage));
  }
  return text;
}

/// "weights 1000, activations 40000000"; kinds of no bytes are left out.
std::string by_kind(const MemoryBytes& bytes) {
  std::string text;
  for (size_t kind = 0; kind < kMemoryKinds; ++kind) {
    if (bytes[kind] != 0) {
      text += (text.empty() ? "" : ", ") +
              std::string(memory_kind_name(static_cast<MemoryKind>(kind))) + " " +
              std::to_string(bytes[kind]);
    }
  }
  return text;
}

/// What makes the largest part of it smaller.
std::string_view advice(const MemoryBytes& bytes) {
  const Bytes activations = bytes[static_cast<size_t>(MemoryKind::Activations)];
  return 2 * activations > sum_of(bytes)
             ? "a smaller micro-batch, --recompute or a policy with fewer micro-batches in flight "
               "needs less"
             : "a smaller stage (--partition, more stages) or a policy with fewer versions of the "
               "weights needs less";
}

}  // namespace

MemoryLimits memory_limits(const ir::Cluster& cluster) {
  MemoryLimits limits;
  limits.reserve(cluster.devices.size());
  for (const ir::DeviceSpec& device : cluster.devices) {
    limits.push_back(device.memory_bytes);
  }
  return limits;
}

ir::Status check_memory(const ir::Schedule& schedule,
                        const std::vector<DeviceMemory>& memory,
                        const MemoryLimits& limits) {
  ir::Error error{.kind = ir::ErrorKind::Illegal, .diagnostics = {}};
  for (size_t d = 0; d < memory.size() && d < limits.size(); ++d) {
    if (!limits[d] || memory[d].peak <= *limits[d]) {
      continue;
    }
    error.diagnostics.push_back(
        {"memory-limit", place_of(schedule, d),
         "needs " + std::to_string(memory[d].peak) + " bytes " +
             ir::micros_text(memory[d].peak_time) + " us after the start, its limit is " +
             std::to_string(*limits[d]) + ": " + std::to_string(memory[d].peak - *limits[d]) +
             " too many (" + by_kind(memory[d].at_peak) + "); " +
             std::string(advice(memory[d].at_peak))});
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  return {};
}

}  // namespace xpipe::simulator
