#include "simulator/simulate.h"

#include "ir/status.h"
#include "simulator/program.h"
#include "simulator/replay.h"

namespace xpipe::simulator {

ir::Timeline simulate(const ir::Schedule& schedule, const scheduler::CostModel& costs) {
  const Program program(schedule);
  const CostTable table = price(program, costs);
  ReplayState state;
  const ir::Result<ir::Nanos> done = replay(program, table, state);
  XPIPE_CHECK(done.ok()) << done.error().to_string();
  return timeline_of(program, table, state);
}

}  // namespace xpipe::simulator
