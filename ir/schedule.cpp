#include "ir/schedule.h"

namespace xpipe::ir {

double heap_bytes_per_task(const Schedule& schedule) {
  if (schedule.tasks.empty()) {
    return 0.0;
  }
  std::size_t bytes =
      schedule.tasks.capacity() * sizeof(Task) + schedule.edges.capacity() * sizeof(Edge) +
      schedule.lanes.capacity() * sizeof(Lane) + schedule.stages.capacity() * sizeof(StageInfo) +
      schedule.options.capacity() * sizeof(schedule.options[0]);
  for (const Lane& lane : schedule.lanes) {
    bytes += lane.order.capacity() * sizeof(TaskId);
  }
  for (const StageInfo& stage : schedule.stages) {
    bytes += stage.devices.capacity() * sizeof(DeviceId);
  }
  return static_cast<double>(bytes) / static_cast<double>(schedule.tasks.size());
}

}  // namespace xpipe::ir
