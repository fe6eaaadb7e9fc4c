#include "simulator/steady_state.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "simulator/long_run.h"
#include "simulator/simulate.h"
#include "tests/simulator/replay_helpers.h"

namespace xpipe::tests {
namespace {

using ir::Nanos;
using simulator::LongRun;
using simulator::replay_long_run;
using simulator::SteadyState;

ir::Result<LongRun> run_of(const std::string& policy,
                           Sizes sizes,
                           const scheduler::CostModel& costs,
                           std::uint32_t* longest = nullptr) {
  return replay_long_run({.mini_batches = sizes.mini_batches}, costs,
                         [&](std::uint32_t mini_batches) -> ir::Result<ir::Schedule> {
                           if (longest != nullptr) {
                             *longest = std::max(*longest, mini_batches);
                           }
                           return schedule_of(policy,
                                              {sizes.stages, sizes.micro_batches, mini_batches});
                         });
}

/// The steady state of a policy on a chain of stages.
SteadyState steady_of(const std::string& policy, Sizes sizes, const scheduler::CostModel& costs) {
  const auto result = run_of(policy, sizes, costs);
  REQUIRE(result.ok());
  return result.value().steady;
}

TEST_CASE("steady state: the textbook example has period 4 and 4.5 ms (design.md 10)") {
  // f/b = 1/2 ms, 1 ms latency, D = 4, T = 1: the differences go 3, 5, 5, 5, 3 ... ms. Stage 0 has
  // 4 micro-batches in flight on a round trip of 4 * 3 + 2 * 3 = 18 ms: 18 / 4 = 4.5.
  ir::LinkSpec link;
  link.latency = kMilli;
  const scheduler::CostModel costs = scheduler::uniform_costs(4, 4, kMilli, 2 * kMilli, link);
  for (const std::uint32_t n : {1U, 5U, 8U, 50U, 1000U}) {
    CAPTURE(n);
    const SteadyState steady = steady_of("xpipe", {4, 1, n}, costs);
    CHECK(steady.period == 4);
    CHECK(steady.period_ns == 18 * kMilli);
    CHECK(steady.ns_per_mini_batch() == 4'500'000);
  }
}

TEST_CASE("steady state: asynchronous pipelines take T max(f + b), whatever T") {
  const scheduler::CostModel costs = uneven_stages({30, 50, 20, 40}, {60, 70, 110, 60});
  for (const std::uint32_t t : {1U, 2U, 4U}) {
    const SteadyState steady = steady_of("xpipe", {4, t, 8}, costs);
    CHECK(steady.period == 1);
    CHECK(steady.period_ns == Nanos{t} * 130);
  }
  CHECK(steady_of("pipedream", {4, 1, 8}, costs).period_ns == 130);
}

TEST_CASE("steady state: xpipe over gpipe is (T + D - 1)/T on equal stages") {
  for (const std::uint32_t d : {2U, 4U, 8U}) {
    for (const std::uint32_t t : {1U, 2U, 4U, 8U}) {
      CAPTURE(d);
      CAPTURE(t);
      const scheduler::CostModel costs = equal_stages(d, 1 * kMilli, 2 * kMilli);
      const SteadyState xpipe = steady_of("xpipe", {d, t, 8}, costs);
      const SteadyState gpipe = steady_of("gpipe", {d, t, 8}, costs);
      CHECK(xpipe.period == 1);
      CHECK(gpipe.period == 1);
      CHECK(xpipe.period_ns == Nanos{t} * 3 * kMilli);
      CHECK(gpipe.period_ns == Nanos{t + d - 1} * 3 * kMilli);
    }
  }
}

TEST_CASE("steady state: a million mini-batches compile no more than a hundred do") {
  const scheduler::CostModel costs = uneven_stages({30, 50, 20, 40}, {60, 70, 110, 60});
  std::uint32_t hundred = 0;
  std::uint32_t million = 0;
  REQUIRE(run_of("xpipe", {4, 2, 100}, costs, &hundred).ok());
  const auto run = run_of("xpipe", {4, 2, 1'000'000}, costs, &million);
  REQUIRE(run.ok());
  CHECK(million == hundred);
  CHECK(million < 40);
  const LongRun& long_run = run.value();
  REQUIRE(long_run.longer.has_value());
  // Fill and drain as for 100, and 2 * 130 ns each.
  const Nanos first_hundred =
      ir::makespan(simulator::simulate(schedule_of("xpipe", {4, 2, 100}), costs));
  CHECK(long_run.extrapolated(ir::makespan(long_run.base.timeline),
                              ir::makespan(long_run.longer->timeline)) ==
        first_hundred + (1'000'000 - 100) * Nanos{260});
}

TEST_CASE("steady state: stages that drift by a nanosecond settle, and errors come through") {
  // Stage 0 runs ahead of stage 1 by 1 ns a mini-batch until its place in flight is used up.
  const scheduler::CostModel costs = uneven_stages({333, 334}, {666, 667});
  const SteadyState steady = steady_of("xpipe", {2, 1, 2}, costs);
  CHECK(steady.period == 1);
  CHECK(steady.period_ns == 1001);
  const auto failing =
      replay_long_run({.mini_batches = 3}, costs, [](std::uint32_t n) -> ir::Result<ir::Schedule> {
        if (n > 3) {
          return ir::make_error(ir::ErrorKind::Usage, "no", "n", "too many");
        }
        return schedule_of("xpipe", {2, 1, n});
      });
  REQUIRE_FALSE(failing.ok());
  CHECK(failing.error().diagnostics.front().message == "too many");
}

}  // namespace
}  // namespace xpipe::tests
