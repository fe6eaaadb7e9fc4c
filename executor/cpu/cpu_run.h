// One run on the cpu backend: a program for each lane, the threads' loop over them, and what has
// been done so far. Recorded by one thread, then worked on by the pool's threads.
//
// A device's thread takes the first of its lanes whose head is ready: sends first (another device
// waits for them), then receives, then compute. When none is ready it spins for a moment and then
// sleeps until a task that one of its heads may wait for is done elsewhere.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "executor/device.h"
#include "executor/stall.h"
#include "executor/stop_state.h"
#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/timeline.h"

namespace xpipe::executor {

class CpuRun {
 public:
  /// `schedule` must outlive the run's work. `spin`: how long a thread looks again before it
  /// sleeps.
  CpuRun(const ir::Schedule& schedule,
         std::shared_ptr<StopState> state,
         std::chrono::nanoseconds spin);
  CpuRun(const CpuRun&) = delete;
  CpuRun& operator=(const CpuRun&) = delete;
  virtual ~CpuRun() = default;

  // Recording: one thread, before release().
  void wait(ir::LaneId lane, ir::TaskId event);
  void enqueue(ir::LaneId lane, ir::TaskId task, Backend::Work work);
  /// Another process runs `task`, and so everything on its device.
  void expect(ir::TaskId task, const std::string& owner);

  /// Ends the recording; time counts from here.
  void release();

  /// The loop of one device: returns when its lanes are done, or on a stop after the task at hand.
  virtual void serve(ir::DeviceId device);

  /// The task of another process is done. From any thread, before release() or after.
  void complete(ir::TaskId task);

  // From any thread, after release().
  /// Makes sleeping threads look at the StopState.
  void wake_all();
  /// Grows whenever a task starts or ends, those of other processes included.
  [[nodiscard]] std::uint64_t moves() const;
  [[nodiscard]] std::vector<std::optional<LaneHead>> heads() const;

  /// By DeviceId: which other process runs it, empty where this one does; or none at all.
  [[nodiscard]] const std::vector<std::string>& owners() const { return owners_; }

  /// The spans of the tasks of this process that are done.
  [[nodiscard]] ir::Timeline timeline() const;

  [[nodiscard]] std::chrono::steady_clock::time_point origin() const { return origin_; }

 protected:
  // What the loop of a device is made of; EmulatedRun has another loop.
  struct Item {
    Backend::Work work;
    ir::TaskId task{};
    std::uint32_t waits_end = 0;  ///< into Program::waits; they begin where the last item's end
  };

  /// What a lane has to do. `head` and `next_wait` are moved by the lane's device only.
  struct Program {
    std::vector<Item> items;
    std::vector<ir::TaskId> waits;
    std::atomic<std::uint32_t> head = 0;
    std::atomic<std::uint32_t> next_wait = 0;
  };

  /// One device's thread. On cache lines of its own: neighbours write to theirs all the time.
  struct alignas(64) Worker {
    std::vector<Program*> programs;          ///< in the order of preference
    std::atomic<std::uint32_t> signals = 0;  ///< counts events that may concern this device
    std::atomic<bool> asleep = false;
    std::atomic<const Program*> running = nullptr;
    std::atomic<std::uint64_t> moves = 0;
    std::mutex mutex;
    std::condition_variable awake;
  };

  [[nodiscard]] Worker& worker_of(ir::DeviceId device) { return workers_[ir::index_of(device)]; }

  [[nodiscard]] bool head_ready(Program& program) const;
  /// Does the work of the head and notes when it began; false: it failed, and the run with it.
  bool start_head(Worker& worker, Program& program);
  /// The head is done: notes when, and signals the devices that wait for it.
  void end_head(Worker& worker, Program& program);
  [[nodiscard]] static bool all_done(const Worker& worker);
  /// Until a signal after `seen`, a stop, or (when given) the moment `until` of this run's clock.
  void block(Worker& worker, std::uint32_t seen, std::optional<ir::Nanos> until) const;
  static void signal(Worker& worker);
  /// Since release().
  [[nodiscard]] ir::Nanos now() const;

  [[nodiscard]] bool done(ir::TaskId task) const {
    return done_[ir::index_of(task)].load(std::memory_order_acquire);
  }

  [[nodiscard]] bool stopping() const { return state_->stopping(); }

  [[nodiscard]] const ir::Schedule& schedule() const { return schedule_; }

  /// Of a task that is done.
  [[nodiscard]] const ir::Span& span(ir::TaskId task) const { return spans_[ir::index_of(task)]; }

  [[nodiscard]] std::uint32_t lane_of(const Program& program) const {
    return static_cast<std::uint32_t>(&program - programs_.data());
  }

 private:
  void find_waiting_devices();
  void signal_waiting(std::uint32_t task);
  void sleep(Worker& worker, std::uint32_t seen) const;

  const ir::Schedule& schedule_;
  const std::shared_ptr<StopState> state_;
  const std::chrono::nanoseconds spin_;
  std::vector<Program> programs_;        ///< by LaneId
  std::vector<Worker> workers_;          ///< by DeviceId
  std::vector<std::atomic<bool>> done_;  ///< by TaskId
  /// The devices that wait for task i: waiting_[waiting_begin_[i] ... waiting_begin_[i + 1]).
  std::vector<std::uint32_t> waiting_begin_;
  std::vector<ir::DeviceId> waiting_;
  std::vector<ir::Span> spans_;  ///< by TaskId; valid once done
  std::vector<std::string> owners_;
  std::atomic<std::uint64_t> external_moves_ = 0;
  std::atomic<bool> released_ = false;
  std::chrono::steady_clock::time_point origin_;
};

}  // namespace xpipe::executor
