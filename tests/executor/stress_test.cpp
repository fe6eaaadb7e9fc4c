// Many small schedules on the cpu backend, with handlers that take a little and uneven time: what
// each task computes from its predecessors must equal what the inline backend computes.
#include <cstdint>
#include <random>

#include <doctest/doctest.h>

#include "executor/cpu/cpu_backend.h"
#include "executor/cpu/cpu_pool.h"
#include "executor/engine.h"
#include "executor/inline_backend.h"
#include "tests/executor/recorder.h"
#include "tests/executor/schedules.h"

namespace xpipe::tests {

namespace {

/// Keeps the thread busy for a time that depends on `seed` only.
ir::Status busy(std::uint32_t seed) {
  volatile std::uint32_t sink = seed;
  for (std::uint32_t i = (seed * 2654435761U) >> 21U; i > 0; --i) {
    sink = sink + i;
  }
  return {};
}

}  // namespace

TEST_CASE("cpu stress: 200 random schedules compute what the reference computes") {
  std::mt19937 random(4711);
  const auto pool = executor::CpuPool::create({.devices = 6});
  REQUIRE(pool.ok());
  for (std::uint32_t round = 0; round < 200; ++round) {
    const auto pick = [&random](std::uint32_t limit) {
      return static_cast<std::uint32_t>(random() % limit);
    };
    const scheduler::Policy& policy =
        all_policies()[pick(static_cast<std::uint32_t>(all_policies().size()))];
    const ir::Schedule schedule = compiled(policy, 1 + pick(6), 1 + pick(4), 1 + pick(4));
    CAPTURE(round);
    CAPTURE(policy.name);

    Recorder reference(schedule);
    executor::InlineBackend inline_backend;
    REQUIRE(executor::run(schedule, reference.handlers(), inline_backend).ok());

    executor::CpuBackendOptions options;
    if (pick(2) == 0) {
      options.spin = std::chrono::nanoseconds(pick(20'000));
    }
    executor::CpuBackend backend(*pool.value(), options);
    Recorder recorder(schedule);
    const std::uint32_t seed = random();
    const auto result = executor::run(schedule, recorder.handlers([seed](ir::TaskId task) {
      return busy(seed ^ ir::index_of(task));
    }),
                                      backend);
    REQUIRE_MESSAGE(result.ok(), result.status().error().to_string());
    recorder.check_complete();
    CHECK(recorder.values() == reference.values());
  }
}

}  // namespace xpipe::tests
