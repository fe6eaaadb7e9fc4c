#include "simulator/simulate.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ir/ids.h"
#include "scheduler/cost_model.h"
#include "tests/simulator/replay_helpers.h"

namespace xpipe::tests {
namespace {

using ir::Nanos;

/// The uneven fixture of the grid tests: no two stages alike, primes so that no sums coincide.
scheduler::CostModel prime_stages(std::uint32_t stages) {
  const std::vector<Nanos> primes = {1009, 1511, 907, 1301, 2003, 811, 1709, 1201};
  std::vector<Nanos> forward;
  std::vector<Nanos> backward;
  for (std::uint32_t k = 0; k < stages; ++k) {
    forward.push_back(primes[k]);
    backward.push_back(2 * primes[(k + 3) % primes.size()] + 1);
  }
  return uneven_stages(forward, backward);
}

TEST_CASE("simulate: gpipe's mini-batch takes (M + D - 1)(f + b) on equal stages") {
  const Nanos f = 1 * kMilli;
  const Nanos b = 2 * kMilli;
  for (const std::uint32_t d : {1U, 2U, 3U, 4U, 8U}) {
    for (const std::uint32_t m : {1U, 2U, 3U, 4U, 8U}) {
      for (const std::uint32_t n : {1U, 2U, 5U}) {
        CAPTURE(d);
        CAPTURE(m);
        CAPTURE(n);
        const ir::Timeline timeline =
            simulator::simulate(schedule_of("gpipe", {d, m, n}), equal_stages(d, f, b));
        CHECK(ir::makespan(timeline) == Nanos{n} * (m + d - 1) * (f + b));
      }
    }
  }
}

TEST_CASE("simulate: xpipe starts every pass in the slot of methods.md 1.1") {
  // f = b = 1 slot, j from 1, k from 0:
  //   F(j,k) = k + j - 1 for j <= D - k, else 2j + k - 2;   B(j,k) = 2j + 2D - 3 - k.
  //   D = 4:  GPU0  1 2 3 4 _ _ _ |1| 5 |2| 6 |3| 7      GPU3  _ _ _ 1 |1| 2 |2| 3 |3|
  for (const std::uint32_t d : {1U, 2U, 3U, 4U, 8U}) {
    for (const std::uint32_t t : {1U, 2U, 4U}) {
      const std::uint32_t n = 4;
      const ir::Schedule schedule = schedule_of("xpipe", {d, t, n});
      const ir::Timeline timeline = simulator::simulate(schedule, equal_stages(d, 1, 1));
      for (std::uint32_t k = 0; k < d; ++k) {
        for (std::uint32_t j = 1; j <= t * n; ++j) {
          const std::string stage = std::to_string(k);
          const std::string micro_batch = std::to_string(j - 1);
          const ir::Span forward = span_of(schedule, timeline, (stage + "F" + micro_batch).c_str());
          const ir::Span backward =
              span_of(schedule, timeline, (stage + "B" + micro_batch).c_str());
          const Nanos expected = j <= d - k ? Nanos{k} + j - 1 : Nanos{2} * j + k - 2;
          CHECK_MESSAGE(forward.start == expected, stage, "F", micro_batch, " D=", d, " T=", t);
          CHECK_MESSAGE(backward.start == Nanos{2} * j + 2 * Nanos{d} - 3 - k, stage, "B",
                        micro_batch, " D=", d, " T=", t);
        }
      }
    }
  }
}

TEST_CASE("simulate: every span equals the fixed point of the naive replay") {
  for (const char* policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    for (const std::uint32_t d : {1U, 2U, 4U, 7U}) {
      for (const std::uint32_t t : {1U, 2U, 5U}) {
        for (const Nanos latency : {Nanos{0}, Nanos{10}, Nanos{777}, Nanos{5003}}) {
          CAPTURE(policy);
          CAPTURE(d);
          CAPTURE(t);
          CAPTURE(latency);
          scheduler::StageGraph graph = scheduler::chain_of(d);
          for (scheduler::StageLink& link : graph.links) {
            link.bytes = 1000 + 37 * static_cast<ir::Bytes>(ir::index_of(link.to));
          }
          scheduler::CostModel costs = prime_stages(d);
          costs.task_overhead = latency % 3;
          for (scheduler::StageCosts& stage : costs.stages) {
            stage.predict = 31;
            stage.step = 57;
            stage.stash = 13;
          }
          for (scheduler::LinkCosts& link : costs.links) {
            link.spec.latency = latency;
            link.spec.bandwidth_bytes_per_s = latency == 10 ? 7e8 : 3e9;
          }
          const ir::Schedule schedule = schedule_of(policy, {d, t, 6}, graph);
          REQUIRE(scheduler::check_costs(costs, schedule).ok());
          CHECK(simulator::simulate(schedule, costs) == naive_replay(schedule, costs));
        }
      }
    }
  }
}

}  // namespace
}  // namespace xpipe::tests
