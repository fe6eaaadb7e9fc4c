#include "app/compiled_run.h"

#include "simulator/simulate.h"

namespace xpipe::app {

bool CompiledRun::is_of(const RunRequest& request,
                        const scheduler::StageGraph& graph,
                        const scheduler::Passes& passes) const {
  return request_ == request && graph_.stages == graph.stages && graph_.links == graph.links &&
         passes_ == passes;
}

ir::Result<ir::Schedule> CompiledRun::compiled(std::uint32_t mini_batches) {
  if (const auto kept = kept_.find(mini_batches); kept != kept_.end()) {
    return kept->second;
  }
  ir::Result<ir::Schedule> schedule = scheduler::compile(*request_->policy,
                                                         {.stages = graph_.stages,
                                                          .micro_batches = request_->micro_batches,
                                                          .mini_batches = mini_batches,
                                                          .options = request_->options},
                                                         graph_, passes_);
  if (keeps_ && schedule.ok()) {
    kept_.emplace(mini_batches, schedule.value());
  }
  return schedule;
}

ir::Result<simulator::LongRun> CompiledRun::replay(const scheduler::CostModel& costs,
                                                   bool extrapolate) {
  if (schedule_.has_value()) {
    if (ir::Status priced = scheduler::check_costs(costs, *schedule_); !priced.ok()) {
      return priced.error();
    }
    ir::Result<simulator::ReplayedSegment> segment = simulator::replay_segment(*schedule_, costs);
    if (!segment.ok()) {
      return segment.error();
    }
    simulator::LongRun run{.base = std::move(segment).value()};
    run.steady.note = "a schedule from a file has one length, so no steady state is looked for";
    return run;
  }
  return simulator::replay_long_run(
      {.mini_batches = request_->mini_batches, .extrapolate = extrapolate}, costs,
      [&](std::uint32_t mini_batches) -> ir::Result<ir::Schedule> {
        ir::Result<ir::Schedule> schedule = compiled(mini_batches);
        if (schedule.ok()) {
          if (ir::Status priced = scheduler::check_costs(costs, schedule.value()); !priced.ok()) {
            return priced.error();
          }
        }
        return schedule;
      });
}

}  // namespace xpipe::app
