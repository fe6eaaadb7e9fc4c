// The emulated backend: the threads, queues and time-outs of the cpu backend, and tasks that really
// last as long as a cost model says, asleep. It measures what a plan leaves out (hand-overs between
// threads, timers, the engine) without a model or a GPU, and tests concurrency with real waiting.
//
//   plan:      simulator::simulate(schedule, costs)
//   run:       run(schedule, no_op_handlers(), EmulatedBackend(pool, costs))
//   compare:   what the run lost beyond the plan is overhead, never arithmetic
//
// A task runs its handler first and then sleeps for what is left of its time; a handler that takes
// longer makes the task longer, and one that blocks keeps all lanes of its device. Sends hold their
// lane (half duplex: their link, first come, first served) for bytes / bandwidth, and a receive
// starts a latency after its send's end. Order of shared links is that of real time: what got ready
// within microseconds may go either way.
#pragma once

#include <memory>
#include <string>

#include "executor/cpu/cpu_backend.h"
#include "scheduler/cost_model.h"

namespace xpipe::executor {

class EmulatedBackend final : public CpuBackend {
 public:
  /// `pool` must outlive the backend. `time_out` bounds the wait for a task beyond its time.
  EmulatedBackend(CpuPool& pool,
                  scheduler::CostModel costs,
                  std::chrono::nanoseconds time_out = std::chrono::seconds(300));

  [[nodiscard]] std::string name() const override { return "emulated"; }

  /// Errors: those of scheduler::check_costs() and of CpuBackend::begin(); Usage "not-emulated" for
  /// max-min sharing and for overlap slow-downs.
  ir::Status begin(const ir::Schedule& schedule) override;

  /// Refuses: what a task of another process takes is not known here.
  ir::Status expect(Event event, const std::string& owner) override {
    // Not CpuBackend's, which waits.
    return Backend::expect(event, owner);  // NOLINT(bugprone-parent-virtual-call)
  }

 protected:
  [[nodiscard]] std::shared_ptr<CpuRun> make_run(const ir::Schedule& schedule,
                                                 std::shared_ptr<StopState> state) const override;
  [[nodiscard]] std::chrono::nanoseconds time_out() const override;

 private:
  const std::shared_ptr<const scheduler::CostModel> costs_;
  ir::Nanos longest_ = 0;  ///< task of the schedule, latencies included
};

}  // namespace xpipe::executor
