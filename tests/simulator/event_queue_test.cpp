#include "simulator/event_queue.h"

#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace xpipe::simulator {
namespace {

using ir::Nanos;
using ir::TaskId;

TEST_CASE("event queue: by time, and of one time the one pushed first") {
  EventQueue queue;
  queue.push(20, EventKind::Start, TaskId{1});
  queue.push(10, EventKind::Finish, TaskId{9});
  queue.push(20, EventKind::Finish, TaskId{0});
  queue.push(10, EventKind::Start, TaskId{3});
  queue.push(20, EventKind::Start, TaskId{2});
  std::vector<std::pair<Nanos, TaskId>> order;
  while (!queue.empty()) {
    const Nanos announced = queue.next_time();
    const Event event = queue.pop();
    CHECK(event.time == announced);
    CHECK(queue.now() == event.time);
    order.emplace_back(event.time, event.task);
  }
  const std::vector<std::pair<Nanos, TaskId>> expected = {
      {10, TaskId{9}}, {10, TaskId{3}}, {20, TaskId{1}}, {20, TaskId{0}}, {20, TaskId{2}}};
  CHECK(order == expected);
}

TEST_CASE("event queue: what is pushed at the present comes after what is there already") {
  EventQueue queue;
  queue.push(5, EventKind::Start, TaskId{1});
  queue.push(5, EventKind::Start, TaskId{2});
  CHECK(queue.pop().task == TaskId{1});
  queue.push(5, EventKind::Finish, TaskId{3});
  CHECK(queue.pop().task == TaskId{2});
  CHECK(queue.pop().task == TaskId{3});
  CHECK(queue.empty());
}

}  // namespace
}  // namespace xpipe::simulator
