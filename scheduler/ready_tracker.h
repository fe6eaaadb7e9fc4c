// Who may start: the one place where readiness is decided, for the simulator
// and the executor alike. A task is ready when its predecessor in its lane and
// all its edge predecessors are done.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"

namespace xpipe::scheduler {

/// Successors and predecessor counts of every task, lanes included, in
/// compressed rows.
class TaskGraph {
 public:
  /// Requires: a schedule whose ids are in range. `schedule` need not outlive
  /// the graph.
  explicit TaskGraph(const ir::Schedule& schedule);

  [[nodiscard]] std::size_t size() const { return predecessor_count_.size(); }

  /// Edge successors first, in the order of Schedule::edges, then the successor
  /// in the lane.
  [[nodiscard]] std::span<const ir::TaskId> successors(ir::TaskId task) const;

  /// Edge predecessors in the order of Schedule::edges, then the predecessor in
  /// the lane.
  [[nodiscard]] std::span<const ir::TaskId> predecessors(ir::TaskId task) const;

  [[nodiscard]] std::uint32_t predecessor_count(ir::TaskId task) const {
    return predecessor_count_[ir::index_of(task)];
  }

 private:
  std::vector<std::uint32_t> successor_begin_;
  std::vector<ir::TaskId> successors_;
  std::vector<std::uint32_t> predecessor_begin_;
  std::vector<ir::TaskId> predecessors_;
  std::vector<std::uint32_t> predecessor_count_;
};

/// Counts down. Not thread-safe: its owner locks.
class ReadyTracker {
 public:
  /// `graph` must outlive the tracker.
  explicit ReadyTracker(const TaskGraph& graph);

  /// The tasks with no predecessors, in the order of ids.
  [[nodiscard]] std::vector<ir::TaskId> initially_ready() const;

  /// Marks `task` done and calls `on_ready(TaskId)` for each task that this
  /// makes ready, in the order of TaskGraph::successors.
  template <typename OnReady>
  void done(ir::TaskId task, OnReady&& on_ready) {
    ++done_;
    for (ir::TaskId next : graph_->successors(task)) {
      if (--missing_[ir::index_of(next)] == 0) {
        on_ready(next);
      }
    }
  }

  [[nodiscard]] std::size_t done_count() const { return done_; }

  [[nodiscard]] bool all_done() const { return done_ == missing_.size(); }

  /// Predecessors of `task` that are not done yet.
  [[nodiscard]] std::uint32_t missing(ir::TaskId task) const {
    return missing_[ir::index_of(task)];
  }

 private:
  const TaskGraph* graph_;
  std::vector<std::uint32_t> missing_;
  std::size_t done_ = 0;
};

/// A topological order of all tasks (lanes and edges), the smallest id first
/// among the ready ones. Requires: a legal schedule.
[[nodiscard]] std::vector<ir::TaskId> topological_order(const TaskGraph& graph);

}  // namespace xpipe::scheduler
