// What only the cpu backend has: preferences among lanes, time-outs, handlers left behind.
#include "executor/cpu/cpu_backend.h"

#include <latch>
#include <string>

#include <doctest/doctest.h>

#include "executor/cpu/cpu_pool.h"
#include "executor/engine.h"
#include "tests/executor/recorder.h"
#include "tests/executor/schedules.h"

namespace xpipe::tests {

namespace {

using executor::CpuBackend;
using executor::CpuPool;
using std::chrono::milliseconds;

std::unique_ptr<CpuPool> make_pool(std::uint32_t devices) {
  auto pool = CpuPool::create({.devices = devices});
  REQUIRE(pool.ok());
  return std::move(pool).value();
}

bool contains(const ir::Error& error, const std::string& line) {
  return error.to_string().find(line) != std::string::npos;
}

}  // namespace

TEST_CASE("cpu: a transfer that is ready goes before the next compute task (G3)") {
  const ir::Schedule schedule = compiled("gpipe", 2, 4, 1);
  const auto pool = make_pool(2);
  CpuBackend backend(*pool);
  Recorder recorder(schedule);
  REQUIRE(executor::run(schedule, recorder.handlers(), backend).ok());
  for (int j = 0; j < 3; ++j) {
    const std::string micro_batch = std::to_string(j);
    const std::string next = std::to_string(j + 1);
    CHECK(recorder.started_before(find_task(schedule, "0SEND_F" + micro_batch + "[1000B]"),
                                  find_task(schedule, "0F" + next + "[s0:v0]")));
  }
}

TEST_CASE("cpu: sleeping threads and spinning threads give the same result") {
  const ir::Schedule schedule = compiled("pipedream", 3, 1, 20);
  for (const auto spin : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(200'000)}) {
    const auto pool = make_pool(3);
    CpuBackend backend(*pool, {.spin = spin});
    Recorder recorder(schedule);
    REQUIRE(executor::run(schedule, recorder.handlers(), backend).ok());
    recorder.check_complete();
  }
}

TEST_CASE("cpu: a handler that hangs ends in a time-out that names it and who waits for it") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  const ir::TaskId hangs = find_task(schedule, "0F0[s0:v0]");
  std::latch let_go(1);
  Recorder recorder(schedule);
  const executor::HandlerTable handlers = recorder.handlers([&](ir::TaskId task) {
    if (task == hangs) {
      let_go.wait();
    }
    return ir::Status();
  });
  const auto pool = make_pool(2);
  CpuBackend backend(*pool, {.time_out = milliseconds(300)});

  const auto result = executor::run(schedule, handlers, backend);
  REQUIRE(!result.ok());
  const ir::Error& error = result.error();
  CHECK(error.kind == ir::ErrorKind::Runtime);
  CHECK(error.diagnostics[0].code == "time-out");
  CHECK(error.diagnostics[0].where == "0F0[s0:v0]");
  CHECK(contains(error, "0F0[s0:v0]: is being run by device 0 and does not end"));
  CHECK(contains(error, "nothing has moved for 0.3 s"));
  CHECK(contains(error,
                 "1RECV_F0[1000B]: device 1 waits to start it, until 0SEND_F0[1000B] on device 0 "
                 "is done [time-out]"));
  CHECK(contains(error,
                 "1F0[s0:v0]: device 1 waits to start it, until 1RECV_F0[1000B] on device 1 is "
                 "done"));
  CHECK(recorder.started_count() == 1);
  CHECK(!pool->idle());
  CHECK(backend.timeline().spans.empty());

  SUBCASE("until the handler returns, the pool refuses further runs") {
    CpuBackend impatient(*pool, {.time_out = milliseconds(1)});
    const auto refused = executor::run(schedule, executor::no_op_handlers(), impatient);
    REQUIRE(!refused.ok());
    CHECK(refused.error().diagnostics[0].code == "pool-busy");
    let_go.count_down();
  }
  SUBCASE("when it has returned, backend and pool are as good as before") {
    let_go.count_down();
    Recorder again(schedule);
    CpuBackend patient(*pool);
    REQUIRE(executor::run(schedule, again.handlers(), patient).ok());
    again.check_complete();
    // The task that hung has ended; nothing was started after it.
    CHECK(recorder.ended(hangs));
    CHECK(recorder.started_count() == 1);
  }
}

TEST_CASE("cpu: streams that wait for each other end in a time-out that shows the ring") {
  // compute 0 waits for 1F0, compute 1 for 0F0.
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  const ir::TaskId on_0 = find_task(schedule, "0F0[s0:v0]");
  const ir::TaskId on_1 = find_task(schedule, "1F0[s0:v0]");
  const ir::LaneId lane_0 = schedule.task(on_0).lane;
  const ir::LaneId lane_1 = schedule.task(on_1).lane;
  const auto pool = make_pool(2);
  CpuBackend backend(*pool, {.time_out = milliseconds(20)});
  const auto never = [](ir::TaskId) {
    FAIL_CHECK("ran");
    return ir::Status();
  };
  REQUIRE(backend.begin(schedule).ok());
  backend.wait(lane_0, {on_1});
  backend.enqueue(lane_0, on_0, never);
  backend.wait(lane_1, {on_0});
  backend.enqueue(lane_1, on_1, never);
  const ir::Status status = backend.synchronize();
  REQUIRE(!status.ok());
  CHECK(contains(status.error(),
                 "tasks wait for each other in a ring: 0F0[s0:v0] on device 0 waits for "
                 "1F0[s0:v0]; 1F0[s0:v0] on device 1 waits for 0F0[s0:v0]; "));
  CHECK(pool->idle());

  REQUIRE(backend.begin(schedule).ok());
  backend.wait(lane_1, {on_0});
  backend.enqueue(lane_1, on_1, never);
  const ir::Status missing = backend.synchronize();
  REQUIRE(!missing.ok());
  CHECK(contains(missing.error(),
                 "1F0[s0:v0]: device 1 waits to start it, until 0F0[s0:v0] on device 0 is done, "
                 "which was never enqueued"));
}

TEST_CASE("cpu: a stop ends the wait for a device that hangs, too, and its reason is reported") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  std::latch let_go(1);
  std::latch inside(1);
  Recorder recorder(schedule);
  const executor::HandlerTable handlers = recorder.handlers([&](ir::TaskId) {
    inside.count_down();
    let_go.wait();
    return ir::Status();
  });
  const auto pool = make_pool(2);
  CpuBackend backend(*pool, {.time_out = milliseconds(100)});
  std::thread watcher([&] {
    inside.wait();
    backend.stop(ir::make_error(ir::ErrorKind::Interrupted, "interrupted", "", "by SIGINT"));
  });
  const auto result = executor::run(schedule, handlers, backend);
  watcher.join();
  let_go.count_down();
  REQUIRE(!result.ok());
  CHECK(result.error().kind == ir::ErrorKind::Interrupted);
}

}  // namespace xpipe::tests
