#include "simulator/replay.h"

#include <algorithm>

#include "ir/validate.h"
#include "simulator/fluid_replay.h"
#include "simulator/lane_replay.h"

namespace xpipe::simulator {

using ir::index_of;
using ir::Nanos;
using ir::TaskId;
using std::size_t;
using std::uint32_t;

namespace {

bool slows_down(const scheduler::CostModel& costs) {
  return std::ranges::any_of(costs.overlap_slowdown, [](double factor) { return factor > 1.0; });
}

/// Why `program` came to a stop.
ir::Error deadlock(const Program& program) {
  const std::vector<ir::Diagnostic> faults = ir::validate(program.schedule());
  ir::Error error{.kind = ir::ErrorKind::Illegal, .diagnostics = {}};
  for (const ir::Diagnostic& fault : faults) {
    if (fault.code == "cycle") {
      error.diagnostics.push_back(fault);
    }
  }
  if (error.diagnostics.empty()) {
    error = ir::make_error(ir::ErrorKind::Internal, "no-progress", "replay",
                           "some tasks never ended, though none wait for each other");
  }
  return error;
}

/// The last end of all, receives included.
Nanos last_end(const Program& program, const CostTable& costs, std::span<const Nanos> ends) {
  Nanos last = 0;
  for (size_t l = 0; l < program.lanes().size(); ++l) {
    const StepRange& range = program.lanes()[l];
    const size_t from = range.follows ? index_of(*range.follows) : l;
    const StepRange& steps = program.lanes()[from];
    if (steps.begin != steps.end) {
      const Nanos latency = range.follows ? costs.delays[from + 1] : 0;
      last = std::max(last, ends[steps.end - 1] + latency);
    }
  }
  return last;
}

}  // namespace

CostTable price(const Program& program, const scheduler::CostModel& costs) {
  const ir::Schedule& schedule = program.schedule();
  CostTable table;
  table.durations.reserve(program.classes().size());
  for (const TaskId example : program.classes()) {
    table.durations.push_back(scheduler::duration(costs, schedule, schedule.task(example)));
  }
  table.delays.assign(schedule.lanes.size() + 1, 0);
  table.channel_begin.assign(schedule.lanes.size() + 1, 0);
  table.channel_count = costs.channels.size();
  for (size_t l = 0; l < schedule.lanes.size(); ++l) {
    const ir::Lane& lane = schedule.lanes[l];
    if (lane.kind == ir::LaneKind::Send) {
      const scheduler::LinkCosts* link = scheduler::find_link_costs(costs, lane.device, lane.peer);
      XPIPE_CHECK(link != nullptr) << "no link for lane " << l << "; see check_costs()";
      table.delays[l + 1] = link->spec.latency;
      table.channels.insert(table.channels.end(), link->channels.begin(), link->channels.end());
    }
    table.channel_begin[l + 1] = static_cast<uint32_t>(table.channels.size());
  }
  table.contends = !table.channels.empty();
  const bool shares = table.contends && costs.sharing == ir::Sharing::MaxMin;
  if (shares || slows_down(costs)) {
    table.fluid = FluidCosts{scheduler::FairSharing(costs, schedule),
                             scheduler::LinkChannels(costs, schedule),
                             shares,
                             {}};
    for (size_t d = 0; d < schedule.devices; ++d) {
      const double factor = d < costs.overlap_slowdown.size() ? costs.overlap_slowdown[d] : 1.0;
      table.fluid->overlap_speed.push_back(scheduler::slowed(factor));
    }
  }
  return table;
}

ir::Result<Nanos> replay(const Program& program, const CostTable& costs, ReplayState& state) {
  const bool done = costs.fluid      ? FluidReplay(program, costs, state).run()
                    : costs.contends ? LaneReplay<true>(program, costs, state).run()
                                     : LaneReplay<false>(program, costs, state).run();
  if (!done) {
    return deadlock(program);
  }
  state.makespan_ = last_end(program, costs, state.ends());
  return state.makespan_;
}

ir::Timeline timeline_of(const Program& program, const CostTable& costs, const ReplayState& state) {
  const ir::Schedule& schedule = program.schedule();
  ir::Timeline timeline;
  timeline.spans.resize(schedule.tasks.size());
  for (size_t l = 0; l < schedule.lanes.size(); ++l) {
    const std::vector<TaskId>& order = schedule.lanes[l].order;
    const StepRange& range = program.lanes()[l];
    if (range.follows) {
      const Nanos* sent = state.ends().data() + program.lanes()[index_of(*range.follows)].begin;
      const Nanos latency = costs.delays[index_of(*range.follows) + 1];
      for (size_t i = 0; i < order.size(); ++i) {
        const Nanos at = sent[i] + latency;
        timeline.spans[index_of(order[i])] = {.task = order[i], .start = at, .end = at};
      }
      continue;
    }
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t s = range.begin + i;
      const Nanos end = state.ends()[s];
      const Nanos start = state.starts().empty() ? end - costs.durations[program.steps()[s].cost]
                                                 : state.starts()[s];
      timeline.spans[index_of(order[i])] = {.task = order[i], .start = start, .end = end};
    }
  }
  return timeline;
}

size_t ReplayState::heap_bytes() const {
  return (ends_.capacity() + starts_.capacity()) * sizeof(Nanos) +
         lanes_.capacity() * sizeof(Lane) + runnable_.capacity() * sizeof(uint32_t) +
         queue_.heap_bytes();
}

}  // namespace xpipe::simulator
