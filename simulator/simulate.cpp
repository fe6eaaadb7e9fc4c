#include "simulator/simulate.h"

#include <utility>
#include <vector>

#include "ir/status.h"
#include "simulator/program.h"
#include "simulator/replay.h"

namespace xpipe::simulator {

namespace {

struct Planned {
  ir::Timeline timeline;
  std::vector<WorkLeft> work_left;
};

ir::Result<Planned> plan(const ir::Schedule& schedule, const scheduler::CostModel& costs) {
  const Program program(schedule);
  const CostTable table = price(program, costs);
  ReplayState state;
  const ir::Result<ir::Nanos> done = replay(program, table, state);
  if (!done.ok()) {
    return done.error();
  }
  return Planned{timeline_of(program, table, state),
                 {state.work_left().begin(), state.work_left().end()}};
}

}  // namespace

ir::Timeline simulate(const ir::Schedule& schedule, const scheduler::CostModel& costs) {
  ir::Result<Planned> planned = plan(schedule, costs);
  XPIPE_CHECK(planned.ok()) << planned.error().to_string();
  return std::move(planned).value().timeline;
}

ir::Result<ReplayedSegment> replay_segment(ir::Schedule schedule,
                                           const scheduler::CostModel& costs) {
  ir::Result<Planned> planned = plan(schedule, costs);
  if (!planned.ok()) {
    return planned.error();
  }
  return ReplayedSegment{std::move(schedule), std::move(planned.value().timeline),
                         std::move(planned.value().work_left)};
}

}  // namespace xpipe::simulator
