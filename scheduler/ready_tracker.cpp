#include "scheduler/ready_tracker.h"

#include <functional>
#include <queue>

#include "ir/status.h"

namespace xpipe::scheduler {

namespace {

using ir::index_of;
using ir::TaskId;

/// Prefix sums of `counts`, shifted by one: row i is [begin[i], begin[i + 1]).
std::vector<std::uint32_t> row_begins(const std::vector<std::uint32_t>& counts) {
  std::vector<std::uint32_t> begin(counts.size() + 1, 0);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    begin[i + 1] = begin[i] + counts[i];
  }
  return begin;
}

}  // namespace

TaskGraph::TaskGraph(const ir::Schedule& schedule) : predecessor_count_(schedule.tasks.size(), 0) {
  std::vector<std::uint32_t> successor_count(schedule.tasks.size(), 0);
  // Calls fn(from, to) for every pair; edges first so that rows keep the
  // documented order.
  const auto each_pair = [&schedule](auto&& fn) {
    for (const ir::Edge& edge : schedule.edges) {
      fn(edge.from, edge.to);
    }
    for (const ir::Lane& lane : schedule.lanes) {
      for (std::size_t i = 1; i < lane.order.size(); ++i) {
        fn(lane.order[i - 1], lane.order[i]);
      }
    }
  };
  each_pair([&](TaskId from, TaskId to) {
    ++successor_count[index_of(from)];
    ++predecessor_count_[index_of(to)];
  });
  successor_begin_ = row_begins(successor_count);
  predecessor_begin_ = row_begins(predecessor_count_);
  successors_.resize(successor_begin_.back());
  predecessors_.resize(predecessor_begin_.back());
  std::vector<std::uint32_t> next_out(successor_begin_.begin(), successor_begin_.end() - 1);
  std::vector<std::uint32_t> next_in(predecessor_begin_.begin(), predecessor_begin_.end() - 1);
  each_pair([&](TaskId from, TaskId to) {
    successors_[next_out[index_of(from)]++] = to;
    predecessors_[next_in[index_of(to)]++] = from;
  });
}

std::span<const TaskId> TaskGraph::successors(TaskId task) const {
  const std::uint32_t begin = successor_begin_[index_of(task)];
  return {successors_.data() + begin, successor_begin_[index_of(task) + 1] - begin};
}

std::span<const TaskId> TaskGraph::predecessors(TaskId task) const {
  const std::uint32_t begin = predecessor_begin_[index_of(task)];
  return {predecessors_.data() + begin, predecessor_begin_[index_of(task) + 1] - begin};
}

ReadyTracker::ReadyTracker(const TaskGraph& graph) : graph_(&graph), missing_(graph.size()) {
  for (std::size_t i = 0; i < missing_.size(); ++i) {
    missing_[i] = graph.predecessor_count(TaskId(static_cast<std::uint32_t>(i)));
  }
}

std::vector<TaskId> ReadyTracker::initially_ready() const {
  std::vector<TaskId> ready;
  for (std::uint32_t i = 0; i < missing_.size(); ++i) {
    if (graph_->predecessor_count(TaskId{i}) == 0) {
      ready.push_back(TaskId{i});
    }
  }
  return ready;
}

std::vector<TaskId> topological_order(const TaskGraph& graph) {
  ReadyTracker tracker(graph);
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (TaskId task : tracker.initially_ready()) {
    ready.push(index_of(task));
  }
  std::vector<TaskId> order;
  order.reserve(graph.size());
  while (!ready.empty()) {
    const TaskId task{ready.top()};
    ready.pop();
    order.push_back(task);
    tracker.done(task, [&ready](TaskId next) { ready.push(index_of(next)); });
  }
  XPIPE_CHECK(order.size() == graph.size()) << "a schedule with a cycle reached a consumer";
  return order;
}

}  // namespace xpipe::scheduler
