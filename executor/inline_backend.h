// The reference backend: runs each task at once, in the caller's thread, in the order of enqueue.
// What every other backend computes must equal what this one computes.
//
// A wait is an order here: the event must be done already, which the engine's topological order
// sees to. There is no time-out: a handler that hangs, hangs the caller.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "executor/device.h"
#include "executor/stop_state.h"

namespace xpipe::executor {

class InlineBackend final : public Backend {
 public:
  [[nodiscard]] std::string name() const override { return "inline"; }

  ir::Status begin(const ir::Schedule& schedule) override;
  /// Requires: the event's task has been enqueued.
  void wait(ir::LaneId lane, Event event) override;
  Event enqueue(ir::LaneId lane, ir::TaskId task, Work work) override;
  ir::Status synchronize() override;
  void stop(ir::Error reason) override;
  [[nodiscard]] ir::Timeline timeline() const override;

 private:
  StopState state_;
  std::chrono::steady_clock::time_point origin_;
  std::vector<ir::Span> spans_;  ///< of what has run, in that order
  std::vector<bool> enqueued_;   ///< by TaskId
};

}  // namespace xpipe::executor
