#include "simulator/steady_state.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "simulator/simulate.h"
#include "tests/simulator/replay_helpers.h"

namespace xpipe::tests {
namespace {

using ir::Nanos;
using simulator::steady_state;
using simulator::SteadyState;

/// The steady state of a policy on a chain of stages.
SteadyState steady_of(const std::string& policy,
                      Sizes sizes,
                      const scheduler::CostModel& costs,
                      const scheduler::Options& options = {}) {
  const auto result = steady_state(
      {.mini_batches = sizes.mini_batches,
       .longest_period = simulator::default_longest_period(sizes.stages)},
      [&](std::uint32_t mini_batches) -> ir::Result<Nanos> {
        Sizes longer = sizes;
        longer.mini_batches = mini_batches;
        return ir::makespan(simulator::simulate(schedule_of(policy, longer, options), costs));
      });
  REQUIRE(result.ok());
  return result.value();
}

/// A makespan function from a start and differences that are repeated for ever.
simulator::MakespanOf repeating(std::vector<Nanos> differences, std::uint32_t transient = 0) {
  return [=](std::uint32_t n) -> ir::Result<Nanos> {
    Nanos makespan = 1000;
    for (std::uint32_t i = 0; i < n; ++i) {
      makespan += i < transient ? 1 + Nanos{i} * i : differences[i % differences.size()];
    }
    return makespan;
  };
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

TEST_CASE("steady state: runs of equal differences inside a longer period do not mislead") {
  const SteadyState steady =
      steady_state({.mini_batches = 8, .longest_period = 8}, repeating({5, 5, 5, 5, 5, 5, 5, 3}))
          .value();
  CHECK(steady.period == 8);
  CHECK(steady.period_ns == 38);
  CHECK(steady.ns_per_mini_batch() == 5);  // 4.75
}

TEST_CASE("steady state: a late start is found and said") {
  const SteadyState steady =
      steady_state({.mini_batches = 2, .longest_period = 4}, repeating({7, 9}, 12)).value();
  CHECK(steady.period == 2);
  CHECK(steady.period_ns == 16);
  CHECK(steady.from == 18);
  REQUIRE(steady.note.has_value());
  CHECK(steady.note->find("settles only after") != std::string::npos);
}

TEST_CASE("steady state: without a period there is no figure but a note") {
  const auto growing = [](std::uint32_t n) -> ir::Result<Nanos> { return Nanos{n} * n; };
  const SteadyState steady =
      steady_state({.mini_batches = 8, .longest_period = 4}, growing).value();
  CHECK_FALSE(steady.found());
  CHECK_FALSE(steady.ns_per_mini_batch().has_value());
  CHECK(steady.note.has_value());
}

TEST_CASE("steady state: a long run costs no more than a short one, and errors come through") {
  std::uint32_t calls = 0;
  std::uint32_t longest = 0;
  const auto counted = [&](std::uint32_t n) -> ir::Result<Nanos> {
    ++calls;
    longest = std::max(longest, n);
    return Nanos{n} * 3;
  };
  CHECK(steady_state({.mini_batches = 1'000'000, .longest_period = 8}, counted).value().found());
  CHECK(calls == 17);
  CHECK(longest == simulator::kLatestStart + 16);
  const auto failing = [](std::uint32_t n) -> ir::Result<Nanos> {
    if (n > 9) {
      return ir::make_error(ir::ErrorKind::Usage, "no", "n", "too many");
    }
    return Nanos{n};
  };
  CHECK_FALSE(steady_state({}, failing).ok());
}

}  // namespace
}  // namespace xpipe::tests
