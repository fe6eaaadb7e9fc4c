// What the emulated backend promises on top of the conformance suite: lower bounds of real time and
// who may overlap. Upper bounds are the machine's affair: bench/fidelity.cpp measures them.
#include "executor/cpu/emulated_backend.h"

#include <algorithm>
#include <thread>

#include <doctest/doctest.h>

#include "executor/engine.h"
#include "scheduler/cost_model.h"
#include "simulator/simulate.h"
#include "tests/executor/recorder.h"
#include "tests/executor/schedules.h"

namespace xpipe::tests {

namespace {

using executor::CpuPool;
using executor::EmulatedBackend;
using ir::index_of;
using ir::Nanos;
using std::chrono::milliseconds;

constexpr Nanos kMicro = 1'000;
constexpr Nanos kHour = 3600 * Nanos{1'000'000'000};

std::unique_ptr<CpuPool> threads_for(std::uint32_t devices) {
  auto pool = CpuPool::create({.devices = devices});
  REQUIRE(pool.ok());
  return std::move(pool).value();
}

/// 1000-byte messages take 200 us and arrive 100 us later.
scheduler::CostModel costs_with(std::uint32_t stages, Nanos forward, ir::Duplex duplex) {
  const ir::LinkSpec link{.bandwidth_bytes_per_s = 5e6, .latency = 100 * kMicro, .duplex = duplex};
  return scheduler::uniform_costs(stages, stages, forward, 2 * forward, link);
}

ir::Timeline run_on(const ir::Schedule& schedule, const scheduler::CostModel& costs) {
  const auto pool = threads_for(schedule.devices);
  EmulatedBackend backend(*pool, costs);
  Recorder recorder(schedule);
  auto timeline = executor::run(schedule, recorder.handlers(), backend);
  REQUIRE_MESSAGE(timeline.ok(), timeline.status().error().to_string());
  recorder.check_complete();
  REQUIRE(timeline.value().spans.size() == schedule.tasks.size());
  return std::move(timeline).value();
}

/// The transfers of a timeline, by start.
std::vector<ir::Span> transfers(const ir::Schedule& schedule, const ir::Timeline& timeline) {
  std::vector<ir::Span> spans;
  for (const ir::Span& span : timeline.spans) {
    if (schedule.task(span.task).kind() == ir::TaskKind::Send) {
      spans.push_back(span);
    }
  }
  std::ranges::sort(spans, {}, &ir::Span::start);
  return spans;
}

}  // namespace

TEST_CASE("emulated: no task is shorter than its cost, no message faster than its link") {
  for (const char* policy : {"gpipe", "xpipe", "pipedream"}) {
    CAPTURE(policy);
    const ir::Schedule schedule = compiled(policy, 3, 2, 2);
    const scheduler::CostModel costs = costs_with(3, 300 * kMicro, ir::Duplex::Full);
    const ir::Timeline timeline = run_on(schedule, costs);
    for (const ir::Span& span : timeline.spans) {
      CHECK(span.end - span.start >=
            scheduler::duration(costs, schedule, schedule.task(span.task)));
    }
    for (const ir::Edge& edge : schedule.edges) {
      CHECK(timeline.spans[index_of(edge.to)].start >=
            timeline.spans[index_of(edge.from)].end + scheduler::edge_delay(costs, schedule, edge));
    }
    // Nothing can end before the plan, which starts everything as early as can be.
    CHECK(ir::makespan(timeline) >= ir::makespan(simulator::simulate(schedule, costs)));
  }
}

TEST_CASE("emulated: a device sends and computes at the same time") {
  // 0F1 may start when 0F0 ends, and so may 0SEND_F0, which takes 200 us: whichever thread serves
  // them, the plan's overlap is possible only when neither waits for the other's end.
  const ir::Schedule schedule = compiled("gpipe", 2, 4, 1);
  const ir::Timeline timeline = run_on(schedule, costs_with(2, 2'000 * kMicro, ir::Duplex::Full));
  const auto span = [&](const char* text) {
    return timeline.spans[index_of(find_task(schedule, text))];
  };
  CHECK(span("0F1[s0:v0]").start < span("0SEND_F0[1000B]").end);
  CHECK(span("0SEND_F0[1000B]").start < span("0F1[s0:v0]").end);
}

TEST_CASE("emulated: a half-duplex link carries one message at a time") {
  const ir::Schedule schedule = compiled("pipedream", 2, 1, 12);
  const auto half =
      transfers(schedule, run_on(schedule, costs_with(2, 50 * kMicro, ir::Duplex::Half)));
  REQUIRE(half.size() == 24);
  for (std::size_t i = 1; i < half.size(); ++i) {
    CHECK(half[i - 1].end <= half[i].start);
  }
}

TEST_CASE("emulated: a task longer than the time-out is no hang") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  const auto pool = threads_for(2);
  EmulatedBackend backend(*pool, costs_with(2, 40'000 * kMicro, ir::Duplex::Full),
                          milliseconds(10));
  CHECK(executor::run(schedule, executor::no_op_handlers(), backend).ok());
}

TEST_CASE("emulated: stop() and a failure wake those that sleep in a task") {
  const ir::Schedule schedule = compiled("gpipe", 2, 3, 1);
  const auto pool = threads_for(2);
  // 0SEND_F0 is over before 0F2 starts, whose handler keeps device 0's thread.
  scheduler::CostModel costs = costs_with(2, 300 * kMicro, ir::Duplex::Full);
  costs.stages[1].forward = kHour;
  EmulatedBackend backend(*pool, costs);
  const ir::TaskId sleeps = find_task(schedule, "1F0[s0:v0]");
  SUBCASE("stop") {
    std::thread other;
    Recorder recorder(schedule);
    const auto result = executor::run(schedule, recorder.handlers([&](ir::TaskId task) {
      if (task == sleeps) {
        other = std::thread([&backend] {
          backend.stop(ir::make_error(ir::ErrorKind::Interrupted, "signal", "", "enough"));
        });
      }
      return ir::Status();
    }),
                                      backend);
    other.join();
    REQUIRE(!result.ok());
    CHECK(result.error().kind == ir::ErrorKind::Interrupted);
    recorder.check_stopped();
  }
  SUBCASE("failure on another device") {
    std::atomic<bool> asleep = false;
    const ir::TaskId fails = find_task(schedule, "0F2[s0:v0]");
    Recorder recorder(schedule);
    const auto result = executor::run(schedule, recorder.handlers([&](ir::TaskId task) {
      if (task == sleeps) {
        asleep = true;
        asleep.notify_all();
      }
      if (task == fails) {
        asleep.wait(false);
        return ir::Status(ir::make_error(ir::ErrorKind::Runtime, "broken", "", "by the test"));
      }
      return ir::Status();
    }),
                                      backend);
    REQUIRE(!result.ok());
    CHECK(result.error().diagnostics[0].code == "broken");
    recorder.check_stopped();
  }
  CHECK(pool->idle());
}

TEST_CASE("emulated: a schedule that the costs do not price is refused before anything runs") {
  const ir::Schedule schedule = compiled("gpipe", 3, 1, 1);
  const auto pool = threads_for(3);
  EmulatedBackend backend(*pool, costs_with(2, 10, ir::Duplex::Full));
  const auto result = executor::run(schedule, executor::no_op_handlers(), backend);
  REQUIRE(!result.ok());
  CHECK(result.error().diagnostics[0].code == "no-stage-costs");
}

TEST_CASE("emulated: costs that change while a task runs are refused, all at once") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  const auto pool = threads_for(2);
  scheduler::CostModel costs = costs_with(2, 10, ir::Duplex::Full);
  costs.sharing = ir::Sharing::MaxMin;
  costs.overlap_slowdown = {1.0, 1.5};
  EmulatedBackend backend(*pool, costs);
  const auto result = executor::run(schedule, executor::no_op_handlers(), backend);
  REQUIRE(!result.ok());
  REQUIRE(result.error().diagnostics.size() == 2);
  CHECK(result.error().diagnostics[0].where == "sharing");
  CHECK(result.error().diagnostics[1].where == "overlap_slowdown");
}

}  // namespace xpipe::tests
