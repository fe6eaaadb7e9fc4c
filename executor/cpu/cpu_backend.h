// The cpu backend: each device is a thread of a CpuPool that serves all lanes of that device, so
// that a task's transfers never wait for another device's compute, and a device does one thing at a
// time as one core would. Runs what it was given in synchronize().
//
// Time-out: when no task has started or ended for `time_out`, the run fails with who waits for
// whom. A handler cannot be interrupted: one that hangs is given a moment more and then left
// behind. Then synchronize() returns although that handler still runs, pool().idle() is false, and
// the schedule, the handlers and what they use must live until it is idle (~CpuPool waits for
// that). A program that wants to end does so with std::quick_exit. When the handler does return,
// the pool is as good as before.
//
// Thread-safety: as Backend.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "executor/cpu/cpu_pool.h"
#include "executor/cpu/cpu_run.h"
#include "executor/device.h"
#include "executor/stop_state.h"

namespace xpipe::executor {

struct CpuBackendOptions {
  /// Longer than any task; bounds every wait (`--timeout-s`). > 0.
  std::chrono::nanoseconds time_out = std::chrono::seconds(300);
  /// How long a thread looks for work before it sleeps. Without: kDefaultSpin when every thread of
  /// a run can have a core of its own, else 0, since a spinning thread would keep another one from
  /// working.
  std::optional<std::chrono::nanoseconds> spin = std::nullopt;
};

/// A little more than what waking a sleeping thread costs (7 to 16 us, bench/engine_overhead.cpp):
/// spinning longer loses more than it can save. The thread yields while it spins, so that on a
/// machine that is busy with something else it costs no more than sleeping.
inline constexpr std::chrono::nanoseconds kDefaultSpin = std::chrono::microseconds(20);

class CpuBackend : public Backend {
 public:
  /// `pool` must outlive the backend.
  explicit CpuBackend(CpuPool& pool, CpuBackendOptions options = {})
      : pool_(pool), options_(options), state_(std::make_shared<StopState>()) {}

  [[nodiscard]] std::string name() const override { return "cpu"; }

  /// Errors: Usage "pool-too-small" when the schedule has more devices than the pool has threads;
  /// Runtime "pool-busy" when a handler left behind has not returned within the time-out.
  ir::Status begin(const ir::Schedule& schedule) override;
  ir::Status expect(Event event, const std::string& owner) override;
  void complete(Event event) override;
  void wait(ir::LaneId lane, Event event) override;
  Event enqueue(ir::LaneId lane, ir::TaskId task, Work work) override;
  ir::Status synchronize() override;
  void stop(ir::Error reason) override;
  [[nodiscard]] ir::Timeline timeline() const override;
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> origin() const override;

 protected:
  /// What the threads do in the run that begins; `state` outlives it.
  [[nodiscard]] virtual std::shared_ptr<CpuRun> make_run(const ir::Schedule& schedule,
                                                         std::shared_ptr<StopState> state) const;

  /// How long nothing may start or end: the options' time-out.
  [[nodiscard]] virtual std::chrono::nanoseconds time_out() const { return options_.time_out; }

 private:
  CpuPool& pool_;
  const CpuBackendOptions options_;
  const std::shared_ptr<StopState> state_;  ///< shared with a run that is left behind
  const ir::Schedule* schedule_ = nullptr;
  std::shared_ptr<CpuRun> run_;
  std::mutex released_mutex_;
  CpuRun* released_ = nullptr;  ///< the run whose threads stop() must wake
};

}  // namespace xpipe::executor
