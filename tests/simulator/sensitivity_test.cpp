// What a change of one cost may do to the answer: everything where it is what limits, nothing where
// it is not, never the wrong sign.
//
// The signs hold without contention, where a makespan is a longest path. Where transfers share a
// link, first come first served, a faster task can put another transfer first and the whole run
// back (Graham's anomalies), so nothing is claimed there.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "scheduler/cost_model.h"
#include "simulator/critical_path.h"
#include "simulator/simulate.h"
#include "tests/simulator/replay_helpers.h"

namespace xpipe::tests {
namespace {

using ir::Nanos;

const std::vector<std::string> kPolicies{"gpipe", "xpipe", "pipedream", "spectrain"};
constexpr ir::Bytes kBytes = 1'000'003;

Nanos makespan_on(const ir::Schedule& schedule, const scheduler::CostModel& costs) {
  return ir::makespan(simulator::simulate(schedule, costs));
}

/// A chain whose messages have kBytes.
ir::Schedule schedule_with_bytes(const std::string& policy, const Sizes& sizes) {
  scheduler::StageGraph graph = scheduler::chain_of(sizes.stages);
  for (scheduler::StageLink& link : graph.links) {
    link.bytes = kBytes;
  }
  return schedule_of(policy, sizes, graph);
}

/// No two stages and no two links alike; no two sums of times coincide by accident. On some links a
/// transfer takes longer than compute, on others it is nearly free.
scheduler::CostModel prime_costs(std::uint32_t stages) {
  const std::vector<Nanos> primes = {100'943, 151'141, 90'709, 130'171, 200'383, 81'119, 170'921};
  const std::vector<double> bandwidths = {40e9, 3.1e9, 97e9, 7.7e9, 12.3e9, 2.9e9, 61e9};
  std::vector<Nanos> forward;
  std::vector<Nanos> backward;
  for (std::uint32_t k = 0; k < stages; ++k) {
    forward.push_back(primes[k % primes.size()]);
    backward.push_back(2 * primes[(k + 3) % primes.size()] + 1);
  }
  scheduler::CostModel costs = uneven_stages(forward, backward);
  for (std::size_t i = 0; i < costs.links.size(); ++i) {
    const auto from = ir::index_of(costs.links[i].from);
    const auto to = ir::index_of(costs.links[i].to);
    costs.links[i].spec = {.bandwidth_bytes_per_s = bandwidths[(2 * from + to) % bandwidths.size()],
                           .latency = 1'009 + 613 * Nanos{from} + 211 * Nanos{to}};
  }
  return costs;
}

/// The time that the critical path spends in sends over `link`.
Nanos sends_on_path(const ir::Schedule& schedule,
                    const simulator::CriticalPath& path,
                    const scheduler::LinkCosts& link) {
  Nanos time = 0;
  for (const ir::Span& span : path.tasks) {
    const ir::Lane& lane = schedule.lane(schedule.task(span.task).lane);
    if (lane.kind == ir::LaneKind::Send && lane.device == link.from && lane.peer == link.to) {
      time += span.end - span.start;
    }
  }
  return time;
}

TEST_CASE("sensitivity: doubling a bandwidth helps exactly when the link is on the critical path") {
  int bounded = 0;
  int free = 0;
  for (const std::string& policy : kPolicies) {
    for (const std::uint32_t stages : {2U, 3U, 5U}) {
      for (const std::uint32_t micro_batches : {1U, 3U}) {
        CAPTURE(policy);
        CAPTURE(stages);
        CAPTURE(micro_batches);
        const ir::Schedule schedule = schedule_with_bytes(policy, {stages, micro_batches, 4});
        const scheduler::CostModel costs = prime_costs(stages);
        const ir::Timeline timeline = simulator::simulate(schedule, costs);
        const auto path = simulator::critical_path(schedule, timeline, costs);
        for (std::size_t i = 0; i < costs.links.size(); ++i) {
          scheduler::CostModel faster = costs;
          *faster.links[i].spec.bandwidth_bytes_per_s *= 2;
          const Nanos gained = ir::makespan(timeline) - makespan_on(schedule, faster);
          const Nanos on_path = sends_on_path(schedule, path, costs.links[i]);
          if (on_path > 0) {
            ++bounded;
            CHECK(gained > 0);
            CHECK(gained <= on_path / 2 + static_cast<Nanos>(path.tasks.size()));
          } else {
            ++free;
            CHECK(gained == 0);
          }
        }
      }
    }
  }
  CHECK(bounded > 20);
  CHECK(free > 20);
}

TEST_CASE("sensitivity: a mini-batch more costs the larger of compute and transfer, pass by pass") {
  // gpipe on two stages: 2f + 2b + 2c + (M - 1)(max(f, c) + max(b, c)), c the transfer of one
  // message, in each direction on a lane of its own.
  const Nanos f = 10 * kMicro;
  const Nanos b = 20 * kMicro;
  for (const std::uint32_t m : {1U, 2U, 7U}) {
    const ir::Schedule schedule = schedule_with_bytes("gpipe", {2, m, 1});
    for (const Nanos c : {1 * kMicro, 5 * kMicro, 10 * kMicro, 15 * kMicro, 40 * kMicro}) {
      CAPTURE(m);
      CAPTURE(c);
      const double bandwidth = static_cast<double>(kBytes) * 1e9 / static_cast<double>(c);
      const scheduler::CostModel costs =
          scheduler::uniform_costs(2, 2, f, b, {.bandwidth_bytes_per_s = bandwidth});
      CHECK(makespan_on(schedule, costs) ==
            2 * f + 2 * b + 2 * c + (m - 1) * (std::max(f, c) + std::max(b, c)));
    }
  }
}

TEST_CASE("sensitivity: latency counts once for each link of the way there and back") {
  // gpipe: (M + D - 1)(f + b) + 2 (D - 1) latency, whatever M; xpipe and pipedream, one mini-batch
  // of one micro-batch: D (f + b) + 2 (D - 1) latency.
  const Nanos f = 10;
  const Nanos b = 20;
  for (const std::uint32_t d : {1U, 2U, 3U, 6U}) {
    for (const Nanos latency : {0, 1, 7, 1'000}) {
      CAPTURE(d);
      CAPTURE(latency);
      const scheduler::CostModel costs = scheduler::uniform_costs(d, d, f, b, {.latency = latency});
      for (const std::uint32_t m : {1U, 2U, 8U}) {
        CHECK(makespan_on(schedule_of("gpipe", {d, m, 1}), costs) ==
              (m + d - 1) * (f + b) + 2 * (d - 1) * latency);
      }
      for (const char* policy : {"xpipe", "pipedream"}) {
        CHECK(makespan_on(schedule_of(policy, {d, 1, 1}), costs) ==
              d * (f + b) + 2 * (d - 1) * latency);
      }
    }
  }
}

TEST_CASE("sensitivity: both directions at once when the link is duplex, and only then") {
  // pipedream on two stages, two mini-batches in flight, f = b = 1, c = 10 (in us). Full duplex:
  // the round of a mini-batch, 2 (f + b + c), over the two in flight: 12. Half duplex: the link
  // carries two messages a mini-batch: 20. Twice as wide (c = 5): 7 and 10, both by the same
  // reasons.
  const auto per_mini_batch = [](ir::Duplex duplex, Nanos transfer) {
    const double bandwidth = static_cast<double>(kBytes) * 1e9 / static_cast<double>(transfer);
    const scheduler::CostModel costs = scheduler::uniform_costs(
        2, 2, 1 * kMicro, 1 * kMicro, {.bandwidth_bytes_per_s = bandwidth, .duplex = duplex});
    const auto of = [&costs](std::uint32_t mini_batches) {
      return makespan_on(schedule_with_bytes("pipedream", {2, 1, mini_batches}), costs);
    };
    return (of(40) - of(20)) / 20;
  };
  CHECK(per_mini_batch(ir::Duplex::Full, 10 * kMicro) == 12 * kMicro);
  CHECK(per_mini_batch(ir::Duplex::Half, 10 * kMicro) == 20 * kMicro);
  CHECK(per_mini_batch(ir::Duplex::Full, 5 * kMicro) == 7 * kMicro);
  CHECK(per_mini_batch(ir::Duplex::Half, 5 * kMicro) == 10 * kMicro);
}

TEST_CASE("sensitivity: a stage's forward counts as often as the critical path runs through it") {
  std::set<std::int64_t> counts;
  for (const std::string& policy : kPolicies) {
    const ir::Schedule schedule = schedule_with_bytes(policy, {5, 2, 4});
    const scheduler::CostModel costs = prime_costs(5);
    const ir::Timeline timeline = simulator::simulate(schedule, costs);
    const auto path = simulator::critical_path(schedule, timeline, costs);
    for (std::uint32_t k = 0; k < 5; ++k) {
      CAPTURE(policy);
      CAPTURE(k);
      std::int64_t forwards = 0;
      for (const ir::Span& span : path.tasks) {
        const ir::Task& task = schedule.task(span.task);
        forwards += ir::index_of(task.stage) == k && task.kind() == ir::TaskKind::Forward ? 1 : 0;
      }
      scheduler::CostModel slower = costs;
      slower.stages[k].forward += 3;
      const Nanos lost = makespan_on(schedule, slower) - ir::makespan(timeline);
      // Three nanoseconds are less than any slack: the path stays, and each pass on it counts.
      CHECK(lost == 3 * forwards);
      counts.insert(forwards);
    }
  }
  CHECK(counts.size() > 3);
}

TEST_CASE("sensitivity: no cost that rises makes a run shorter") {
  for (const std::string& policy : kPolicies) {
    for (const std::uint32_t stages : {2U, 4U}) {
      const ir::Schedule schedule = schedule_with_bytes(policy, {stages, 3, 3});
      const scheduler::CostModel costs = prime_costs(stages);
      const Nanos before = makespan_on(schedule, costs);
      const auto check_not_shorter = [&](auto&& raise) {
        scheduler::CostModel higher = costs;
        raise(higher);
        CHECK(makespan_on(schedule, higher) >= before);
      };
      for (const Nanos more : {1, 10'007, 1'000'003}) {
        for (std::uint32_t k = 0; k < stages; ++k) {
          check_not_shorter([&](auto& c) { c.stages[k].forward += more; });
          check_not_shorter([&](auto& c) { c.stages[k].backward_input += more; });
          check_not_shorter([&](auto& c) { c.stages[k].step += more; });
          check_not_shorter([&](auto& c) { c.stages[k].predict += more; });
          check_not_shorter([&](auto& c) { c.stages[k].stash += more; });
        }
        for (std::size_t i = 0; i < costs.links.size(); ++i) {
          check_not_shorter([&](auto& c) { c.links[i].spec.latency += more; });
          check_not_shorter([&](auto& c) {
            *c.links[i].spec.bandwidth_bytes_per_s /= 1.0 + static_cast<double>(more) / 1e5;
          });
        }
        check_not_shorter([&](auto& c) { c.task_overhead += more; });
      }
    }
  }
}

TEST_CASE("sensitivity: all times k-fold, the timeline k-fold, contention included") {
  for (const std::string& policy : kPolicies) {
    for (const ir::Duplex duplex : {ir::Duplex::Full, ir::Duplex::Half}) {
      CAPTURE(policy);
      const ir::Schedule schedule = schedule_with_bytes(policy, {4, 2, 4});
      const auto costs_of = [duplex](Nanos k) {
        scheduler::CostModel costs = uneven_stages({101 * k, 151 * k, 97 * k, 131 * k},
                                                   {202 * k, 302 * k, 194 * k, 262 * k});
        // kBytes take 50 k ns.
        scheduler::set_every_link(costs, {.bandwidth_bytes_per_s = static_cast<double>(kBytes) *
                                                                   2e7 / static_cast<double>(k),
                                          .latency = 13 * k,
                                          .duplex = duplex});
        return costs;
      };
      const ir::Timeline once = simulator::simulate(schedule, costs_of(1));
      const ir::Timeline seven = simulator::simulate(schedule, costs_of(7));
      for (std::size_t i = 0; i < once.spans.size(); ++i) {
        CHECK(seven.spans[i].start == 7 * once.spans[i].start);
        CHECK(seven.spans[i].end == 7 * once.spans[i].end);
      }
    }
  }
}

}  // namespace
}  // namespace xpipe::tests
