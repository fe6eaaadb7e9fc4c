// One run on the emulated backend: the threads and queues of CpuRun, and tasks that last as long as
// a cost model says. A device's thread keeps all its lanes going at once: it starts what is ready,
// ends what is due, and sleeps until the next of both.
//
//   compute 0   |0F0 ~~~~~~~|0F1 ~~~~~~~|          ~ the lane is taken, the thread sleeps
//   send 0>1                |~~~~|
//   receive 0>1                  latency |         a receive starts when its message has arrived
//
// Ends are absolute: start + duration, so that a thread that wakes late for one lane does not
// lengthen the task of another. Where links are shared, an arbiter that all devices use grants them
// in the order in which sends got ready (scheduler/link_model.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "executor/cpu/cpu_run.h"
#include "scheduler/cost_model.h"
#include "scheduler/link_model.h"

namespace xpipe::executor {

class EmulatedRun final : public CpuRun {
 public:
  /// Requires: scheduler::check_costs(costs, schedule).ok(). The run keeps `costs`, since it may be
  /// left behind.
  EmulatedRun(const ir::Schedule& schedule,
              std::shared_ptr<const scheduler::CostModel> costs,
              std::shared_ptr<StopState> state);

  void serve(ir::DeviceId device) override;

 private:
  /// Touched by its device's thread only, but for `granted`.
  struct LaneState {
    bool running = false;
    ir::Nanos until = 0;  ///< when the running task is over
    bool asked = false;   ///< the head is ready and waits for its link
    std::atomic<bool> granted = false;
  };

  bool advance(Worker& worker, Program& program, std::optional<ir::Nanos>& wake);
  [[nodiscard]] ir::Nanos arrival(const Program& program) const;
  bool holds_link(const Program& program);
  void end(Worker& worker, Program& program);
  void grant_channels_of(ir::LaneId id);

  const std::shared_ptr<const scheduler::CostModel> costs_;
  std::vector<LaneState> lanes_;  ///< by LaneId
  std::mutex links_mutex_;
  scheduler::LinkChannels links_;  ///< guarded by links_mutex_
};

}  // namespace xpipe::executor
