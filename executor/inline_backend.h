// The reference backend: runs each task at once, in the caller's thread, in the order of enqueue.
// What every other backend computes must equal what this one computes.
//
// A wait is an order here: the event must be done already, which the engine's topological order
// sees to. Only events of other processes are waited for, and bounded by the time-out; a handler
// that hangs, hangs the caller.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "executor/device.h"
#include "executor/stop_state.h"

namespace xpipe::executor {

class InlineBackend final : public Backend {
 public:
  /// `time_out` bounds the wait for a task of another process. > 0.
  explicit InlineBackend(std::chrono::nanoseconds time_out = std::chrono::seconds(300))
      : time_out_(time_out) {}

  [[nodiscard]] std::string name() const override { return "inline"; }

  ir::Status begin(const ir::Schedule& schedule) override;
  ir::Status expect(Event event, const std::string& owner) override;
  void complete(Event event) override;
  /// Requires: the event's task has been enqueued, or is another process's.
  void wait(ir::LaneId lane, Event event) override;
  Event enqueue(ir::LaneId lane, ir::TaskId task, Work work) override;
  ir::Status synchronize() override;
  void stop(ir::Error reason) override;
  [[nodiscard]] ir::Timeline timeline() const override;

  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> origin() const override {
    return origin_;
  }

 private:
  /// Until `event` is done, nothing has come for the time-out (which fails the run), or a stop.
  void await(ir::TaskId event, ir::LaneId lane, ir::TaskId task);

  const std::chrono::nanoseconds time_out_;
  const ir::Schedule* schedule_ = nullptr;
  StopState state_;
  std::chrono::steady_clock::time_point origin_;
  std::vector<ir::Span> spans_;                 ///< of what has run, in that order
  std::vector<bool> enqueued_;                  ///< by TaskId
  std::vector<std::vector<ir::TaskId>> waits_;  ///< by LaneId: external, of its next task
  std::vector<std::string> owners_;             ///< by DeviceId, once there is another process
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> external_done_;  ///< by TaskId; guarded by mutex_
  std::uint64_t moves_ = 0;          ///< of external events; guarded by mutex_
};

}  // namespace xpipe::executor
