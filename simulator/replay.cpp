#include "simulator/replay.h"

#include <algorithm>

#include "ir/validate.h"
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

template <bool kContends>
ir::Result<Nanos> run_lanes(const Program& program, const CostTable& costs, ReplayState& state) {
  if (!LaneReplay<kContends>(program, costs, state).run()) {
    return deadlock(program);
  }
  return state.makespan();
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
  table.is_fluid = slows_down(costs) || (table.contends && costs.sharing == ir::Sharing::MaxMin);
  return table;
}

ir::Result<Nanos> replay(const Program& program, const CostTable& costs, ReplayState& state) {
  return costs.contends ? run_lanes<true>(program, costs, state)
                        : run_lanes<false>(program, costs, state);
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
