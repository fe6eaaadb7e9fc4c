// What a schedule takes and gives back on each device, as events in the order of time: the step
// between a timeline and memory over time (simulator/memory.h, which says what counts).
//
// Tasks of one lane follow each other in time, so the events of a lane are sorted as they are made;
// the few runs of a device are then merged. Linear in tasks and edges for as many lanes a device as
// a pipeline has.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/timeline.h"
#include "scheduler/cost_model.h"
#include "simulator/memory.h"

namespace xpipe::simulator {

/// At one instant what ends comes before what starts, and then what has started at this very
/// instant and ends.
enum class MemoryPhase : std::uint8_t { Ends, Starts, EndsAtOnce };

struct MemoryEvent {
  ir::Nanos time = 0;
  ir::Bytes bytes = 0;  ///< more, or less
  MemoryPhase phase = MemoryPhase::Ends;
  MemoryKind kind = MemoryKind::Weights;

  bool operator==(const MemoryEvent&) const = default;
};

struct MemoryEvents {
  std::vector<MemoryBytes> always;               ///< by DeviceId
  std::vector<std::vector<MemoryEvent>> events;  ///< by DeviceId, by (time, phase)
};

/// Requires: as memory_over_time().
[[nodiscard]] MemoryEvents memory_events(const ir::Schedule& schedule,
                                         const ir::Timeline& timeline,
                                         const scheduler::CostModel& costs);

}  // namespace xpipe::simulator
