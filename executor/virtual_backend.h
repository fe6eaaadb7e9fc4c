// The simulator's twin: runs the handlers of a schedule at once, in the order of enqueue, and says
// when their tasks would have started and ended on a cost model. Its timeline equals the
// simulator's span by span.
//
// No time-out: a handler that hangs, hangs the caller.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "executor/device.h"
#include "executor/stop_state.h"
#include "executor/virtual_clock.h"
#include "scheduler/cost_model.h"

namespace xpipe::executor {

class VirtualBackend final : public Backend {
 public:
  explicit VirtualBackend(scheduler::CostModel costs);

  [[nodiscard]] std::string name() const override { return "virtual"; }

  /// Errors: those of scheduler::check_costs().
  ir::Status begin(const ir::Schedule& schedule) override;
  /// Requires: the event's task has been enqueued.
  void wait(ir::LaneId lane, Event event) override;
  Event enqueue(ir::LaneId lane, ir::TaskId task, Work work) override;
  ir::Status synchronize() override;
  void stop(ir::Error reason) override;

  [[nodiscard]] ir::Timeline timeline() const override { return timeline_; }

 private:
  const scheduler::CostModel costs_;
  StopState state_;
  std::optional<VirtualClock> clock_;
  std::vector<bool> enqueued_;  ///< by TaskId
  ir::Timeline timeline_;
};

}  // namespace xpipe::executor
