// Handlers that write down what the executor does, and the check of it against the schedule itself
// (its lanes and edges, not scheduler/ready_tracker.h, so that the check is independent).
//
// Each task also computes a value from those of its predecessors, in plain memory: a task that
// starts too early gets another value than the reference, and the thread sanitizer sees it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "executor/handlers.h"
#include "ir/schedule.h"

namespace xpipe::tests {

class Recorder {
 public:
  /// `schedule` must outlive the recorder.
  explicit Recorder(const ir::Schedule& schedule);

  /// What a task does besides; called between the records of its start and its end.
  using Extra = std::function<ir::Status(ir::TaskId)>;

  /// A handler for every kind. The recorder must outlive the table.
  [[nodiscard]] executor::HandlerTable handlers(Extra extra = {});

  /// Every task ran once, after its predecessor in the lane and those by edges had ended.
  void check_complete() const;

  /// What ran, ran once and after the success of its predecessors; nothing runs any more.
  void check_stopped() const;

  [[nodiscard]] bool started(ir::TaskId task) const;
  /// Started and ended, successfully.
  [[nodiscard]] bool ended(ir::TaskId task) const;
  [[nodiscard]] std::size_t started_count() const;

  /// `a` had ended before `b` started.
  [[nodiscard]] bool ended_before(ir::TaskId a, ir::TaskId b) const;
  /// `a` started before `b` did.
  [[nodiscard]] bool started_before(ir::TaskId a, ir::TaskId b) const;

  [[nodiscard]] const std::vector<std::uint64_t>& values() const { return values_; }

  [[nodiscard]] std::thread::id thread_of(ir::TaskId task) const;

 private:
  struct Record {
    std::atomic<std::uint32_t> runs = 0;
    std::atomic<std::uint64_t> start = 0;  ///< by the count of all starts and ends; 0: not yet
    std::atomic<std::uint64_t> end = 0;
    std::thread::id thread;
  };

  ir::Status run(ir::TaskId task, const Extra& extra);
  void check_order(const Record& before, const Record& after, ir::TaskId task) const;

  const ir::Schedule& schedule_;
  std::vector<std::vector<ir::TaskId>> predecessors_;
  std::vector<Record> records_;
  std::vector<std::uint64_t> values_;
  std::atomic<std::uint64_t> count_ = 0;
  std::atomic<int> inside_ = 0;
};

}  // namespace xpipe::tests
