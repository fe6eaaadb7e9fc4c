#include "simulator/simulate.h"

#include <utility>

#include "ir/status.h"
#include "simulator/program.h"
#include "simulator/replay.h"

namespace xpipe::simulator {

namespace {

ir::Result<ir::Timeline> timeline_on(const ir::Schedule& schedule,
                                     const scheduler::CostModel& costs) {
  const Program program(schedule);
  const CostTable table = price(program, costs);
  ReplayState state;
  const ir::Result<ir::Nanos> done = replay(program, table, state);
  if (!done.ok()) {
    return done.error();
  }
  return timeline_of(program, table, state);
}

}  // namespace

ir::Timeline simulate(const ir::Schedule& schedule, const scheduler::CostModel& costs) {
  ir::Result<ir::Timeline> timeline = timeline_on(schedule, costs);
  XPIPE_CHECK(timeline.ok()) << timeline.error().to_string();
  return std::move(timeline).value();
}

ir::Result<ReplayedSegment> replay_segment(ir::Schedule schedule,
                                           const scheduler::CostModel& costs) {
  ir::Result<ir::Timeline> timeline = timeline_on(schedule, costs);
  if (!timeline.ok()) {
    return timeline.error();
  }
  return ReplayedSegment{std::move(schedule), std::move(timeline).value()};
}

}  // namespace xpipe::simulator
