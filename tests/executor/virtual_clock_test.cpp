// Closed forms of the virtual backend by itself; that it equals the simulator is twins_test.cpp.
#include "executor/virtual_clock.h"

#include <doctest/doctest.h>

#include "executor/engine.h"
#include "executor/virtual_backend.h"
#include "tests/executor/schedules.h"

namespace xpipe::tests {

namespace {

ir::Timeline run_virtual(const ir::Schedule& schedule, const scheduler::CostModel& costs) {
  executor::VirtualBackend backend(costs);
  auto timeline = executor::run(schedule, executor::no_op_handlers(), backend);
  REQUIRE_MESSAGE(timeline.ok(), timeline.status().error().to_string());
  CHECK(!timeline.value().measured);
  return timeline.value();
}

ir::Span span_of(const ir::Schedule& schedule, const ir::Timeline& timeline, const char* task) {
  return timeline.spans[ir::index_of(find_task(schedule, task))];
}

ir::LinkSpec link(ir::Nanos latency, ir::Duplex duplex) {
  return {.bandwidth_bytes_per_s = 1e9, .latency = latency, .duplex = duplex};
}

}  // namespace

TEST_CASE("virtual: gpipe takes (T + D - 1)(f + b) on equal stages and free links") {
  for (const std::uint32_t stages : {1U, 2U, 5U, 8U}) {
    for (const std::uint32_t micro_batches : {1U, 3U, 8U}) {
      const ir::Schedule schedule = compiled("gpipe", stages, micro_batches, 1, 0);
      const ir::Timeline timeline =
          run_virtual(schedule, scheduler::uniform_costs(stages, stages, 100, 200, {}));
      CHECK(ir::makespan(timeline) == (micro_batches + stages - 1) * 300);
    }
  }
}

TEST_CASE("virtual: a link is busy for bytes over bandwidth, and the latency comes after (G1)") {
  // compute 0 |0F0|0F1|               f = 1 ns, 1000 bytes at 1 GB/s = 1000 ns, latency 10
  // send 0>1      |SEND_F0|SEND_F1|   1..1001..2001
  // compute 1              |1F0|      at 1011
  const ir::Schedule schedule = compiled("gpipe", 2, 2, 1);
  const ir::Timeline timeline =
      run_virtual(schedule, scheduler::uniform_costs(2, 2, 1, 2, link(10, ir::Duplex::Full)));
  CHECK(span_of(schedule, timeline, "0SEND_F0[1000B]").start == 1);
  CHECK(span_of(schedule, timeline, "0SEND_F0[1000B]").end == 1001);
  CHECK(span_of(schedule, timeline, "0SEND_F1[1000B]").end == 2001);
  CHECK(span_of(schedule, timeline, "1RECV_F0[1000B]").start == 1011);
  CHECK(span_of(schedule, timeline, "1RECV_F0[1000B]").end == 1011);
  CHECK(span_of(schedule, timeline, "1F0[s0:v0]").start == 1011);
  CHECK(span_of(schedule, timeline, "1F1[s0:v0]").start == 2011);
}

TEST_CASE("virtual: a half-duplex link serves both directions one after another (G2)") {
  // By hand: 0F0 and 1F0 are local, each sends 1000 bytes to the other at 5.
  ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  const scheduler::CostModel full =
      scheduler::uniform_costs(2, 2, 5, 5, link(10, ir::Duplex::Full));
  const scheduler::CostModel half =
      scheduler::uniform_costs(2, 2, 5, 5, link(10, ir::Duplex::Half));
  const ir::TaskId send_f = find_task(schedule, "0SEND_F0[1000B]");
  const ir::TaskId send_b = find_task(schedule, "1SEND_B0[1000B]");
  const ir::TaskId on_0 = find_task(schedule, "0F0[s0:v0]");
  const ir::TaskId on_1 = find_task(schedule, "1F0[s0:v0]");
  const auto lane = [&schedule](ir::TaskId task) { return schedule.task(task).lane; };
  const auto ends = [&](const scheduler::CostModel& costs) {
    executor::VirtualClock clock(schedule, costs);
    clock.add(lane(on_0), on_0);
    clock.add(lane(on_1), on_1);
    clock.wait(lane(send_f), on_0);
    clock.add(lane(send_f), send_f);
    clock.wait(lane(send_b), on_1);
    clock.add(lane(send_b), send_b);
    std::pair<ir::Nanos, ir::Nanos> result;
    for (const ir::Span& span : std::move(clock).resolve().spans) {
      if (span.task == send_f) {
        result.first = span.end;
      } else if (span.task == send_b) {
        result.second = span.end;
      }
    }
    return result;
  };
  CHECK(ends(full) == std::pair<ir::Nanos, ir::Nanos>(1005, 1005));
  CHECK(ends(half) == (send_f < send_b ? std::pair<ir::Nanos, ir::Nanos>(1005, 2005)
                                       : std::pair<ir::Nanos, ir::Nanos>(2005, 1005)));
}

TEST_CASE("virtual: a cost model that does not price the schedule is refused") {
  const ir::Schedule schedule = compiled("gpipe", 3, 1, 1);
  executor::VirtualBackend backend(scheduler::uniform_costs(2, 2, 1, 1, {}));
  const auto refused = executor::run(schedule, executor::no_op_handlers(), backend);
  REQUIRE(!refused.ok());
  CHECK(refused.error().kind == ir::ErrorKind::Illegal);
  CHECK(refused.error().diagnostics.size() == 3);  // stage 2, links 1>2 and 2>1
}

}  // namespace xpipe::tests
