// What a schedule takes and gives back on each device, as events in the order of time: the step
// between a timeline and memory over time (simulator/memory.h, which says what counts).
//
// Tasks of one lane follow each other in time, so the events of a lane are sorted as they are made;
// the few runs of a device are then merged. Linear in tasks and edges for as many lanes a device as
// a pipeline has.
#pragma once

#include <cstdint>
#include <functional>
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

/// What is held from start to end, and the events of one device by (time, phase).
using TakeEvents =
    std::function<void(const MemoryBytes& always, const std::vector<MemoryEvent>& events)>;

/// Calls `take` for each device, in order; one device's events are there at a time.
/// Requires: as memory_over_time().
void for_each_device(const ir::Schedule& schedule,
                     const ir::Timeline& timeline,
                     const scheduler::CostModel& costs,
                     const TakeEvents& take);

}  // namespace xpipe::simulator
