// Readiness: by lane and edge, and nothing else.
#include "scheduler/ready_tracker.h"

#include <vector>

#include <doctest/doctest.h>

#include "ir/schedule.h"

namespace xpipe::scheduler {
namespace {

using ir::Edge;
using ir::Lane;
using ir::LaneId;
using ir::TaskId;

/// Lane 0: tasks 0, 1; lane 1: tasks 2, 3; edges 0 -> 3 and 2 -> 1.
//
//   lane 0:  0 ──► 1
//             ╲  ╱▲
//              ╳
//             ╱  ╲▼
//   lane 1:  2 ──► 3
ir::Schedule crossed() {
  ir::Schedule schedule;
  schedule.tasks.resize(4);
  schedule.lanes = {Lane{.order = {TaskId{0}, TaskId{1}}}, Lane{.order = {TaskId{2}, TaskId{3}}}};
  schedule.edges = {Edge{TaskId{0}, TaskId{3}}, Edge{TaskId{2}, TaskId{1}}};
  return schedule;
}

TEST_CASE("ready tracker: a task waits for its lane and for every edge") {
  const TaskGraph graph(crossed());
  ReadyTracker tracker(graph);
  CHECK(tracker.initially_ready() == std::vector{TaskId{0}, TaskId{2}});
  std::vector<TaskId> ready;
  const auto note = [&ready](TaskId task) { ready.push_back(task); };
  tracker.done(TaskId{0}, note);
  CHECK(ready.empty());
  CHECK(tracker.missing(TaskId{1}) == 1);
  tracker.done(TaskId{2}, note);
  CHECK(ready == std::vector{TaskId{1}, TaskId{3}});
  CHECK_FALSE(tracker.all_done());
  tracker.done(TaskId{1}, note);
  tracker.done(TaskId{3}, note);
  CHECK(tracker.all_done());
}

TEST_CASE("task graph: edges come before the lane, in both directions") {
  const TaskGraph graph(crossed());
  const auto list = [](std::span<const TaskId> ids) {
    return std::vector<TaskId>(ids.begin(), ids.end());
  };
  CHECK(list(graph.successors(TaskId{0})) == std::vector{TaskId{3}, TaskId{1}});
  CHECK(list(graph.predecessors(TaskId{1})) == std::vector{TaskId{2}, TaskId{0}});
  CHECK(graph.predecessor_count(TaskId{0}) == 0);
}

TEST_CASE("topological order: the smallest id first among the ready ones") {
  const TaskGraph graph(crossed());
  CHECK(topological_order(graph) == std::vector{TaskId{0}, TaskId{2}, TaskId{1}, TaskId{3}});
}

}  // namespace
}  // namespace xpipe::scheduler
