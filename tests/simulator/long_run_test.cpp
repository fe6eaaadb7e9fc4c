#include "simulator/long_run.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "scheduler/cost_model.h"
#include "simulator/extrapolate.h"
#include "simulator/memory.h"
#include "simulator/metrics.h"
#include "simulator/simulate.h"
#include "simulator/staleness.h"
#include "tests/simulator/replay_helpers.h"

namespace xpipe::tests {
namespace {

using ir::Nanos;
using simulator::LongRun;

struct Case {
  std::string policy;
  Sizes sizes;
  scheduler::CostModel costs;
};

scheduler::StageGraph graph_of(std::uint32_t stages) {
  scheduler::StageGraph graph = scheduler::chain_of(stages);
  for (scheduler::StageLink& link : graph.links) {
    link.bytes = 1000 + 100 * static_cast<ir::Bytes>(ir::index_of(link.to));
  }
  return graph;
}

ir::Result<LongRun> long_run(const Case& c, bool extrapolate, bool find_steady_state = true) {
  const scheduler::StageGraph graph = graph_of(c.sizes.stages);
  return simulator::replay_long_run(
      {.mini_batches = c.sizes.mini_batches,
       .extrapolate = extrapolate,
       .find_steady_state = find_steady_state,
       .most_tasks = 100'000},
      c.costs, [&](std::uint32_t n) -> ir::Result<ir::Schedule> {
        return schedule_of(c.policy, {c.sizes.stages, c.sizes.micro_batches, n}, graph);
      });
}

simulator::Metrics metrics_of(const simulator::ReplayedSegment& segment) {
  return simulator::measure(segment.schedule, segment.timeline);
}

std::vector<simulator::DeviceMemory> memory_of(const simulator::ReplayedSegment& segment,
                                               const scheduler::CostModel& costs) {
  return simulator::memory_over_time(segment.schedule, segment.timeline, costs);
}

/// Every figure of the extrapolated run is the full replay's. Returns the periods not replayed.
std::uint64_t check_equals_full_replay(const Case& c) {
  const auto short_way = long_run(c, true);
  REQUIRE(short_way.ok());
  const LongRun& run = short_way.value();
  const auto long_way = long_run(c, false, false);
  REQUIRE(long_way.ok());
  REQUIRE(long_way.value().repeats == 0);
  const simulator::ReplayedSegment& full = long_way.value().base;
  REQUIRE(full.schedule.mini_batches == c.sizes.mini_batches);
  if (run.repeats == 0) {
    CHECK(run.base.timeline == full.timeline);
    CHECK((run.steady.found() || run.steady.note.has_value()));
    CHECK((run.steady.found() || run.note.has_value()));  // all is replayed: said so
    return 0;
  }
  const simulator::ReplayedSegment& longer = *run.longer;
  const std::uint32_t period = longer.schedule.mini_batches - run.base.schedule.mini_batches;
  CHECK(run.base.schedule.mini_batches + run.repeats * period == c.sizes.mini_batches);
  CHECK(run.extrapolated(static_cast<std::int64_t>(run.base.schedule.tasks.size()),
                         static_cast<std::int64_t>(longer.schedule.tasks.size())) ==
        static_cast<std::int64_t>(full.schedule.tasks.size()));

  const simulator::Metrics found =
      simulator::extrapolated(metrics_of(run.base), metrics_of(longer), run.repeats);
  const simulator::Metrics expected = metrics_of(full);
  CHECK(found.makespan == expected.makespan);
  CHECK(found.transfers == expected.transfers);
  CHECK(found.bytes == expected.bytes);
  CHECK(found.links == expected.links);
  CHECK(found.bubble_of_total == expected.bubble_of_total);
  CHECK(found.bubble_of_ideal == expected.bubble_of_ideal);
  CHECK(found.bubble_of_longest == expected.bubble_of_longest);
  for (std::size_t d = 0; d < expected.devices.size(); ++d) {
    CHECK(found.devices[d].busy == expected.devices[d].busy);
    CHECK(found.devices[d].utilization == expected.devices[d].utilization);
    CHECK(found.devices[d].first_start == expected.devices[d].first_start);
    CHECK(found.devices[d].last_end == expected.devices[d].last_end);
    CHECK(found.devices[d].exposed_communication == expected.devices[d].exposed_communication);
  }
  const auto memory = simulator::extrapolated(memory_of(run.base, c.costs),
                                              memory_of(longer, c.costs), run.repeats);
  const auto full_memory = memory_of(full, c.costs);
  for (std::size_t d = 0; d < full_memory.size(); ++d) {
    CHECK(memory[d].peak == full_memory[d].peak);
    CHECK(memory[d].peak_time == full_memory[d].peak_time);
    CHECK(memory[d].peak_by_kind == full_memory[d].peak_by_kind);
  }
  const auto staleness = simulator::measure_staleness(run.base.schedule);
  if (simulator::is_settled(staleness, simulator::measure_staleness(longer.schedule))) {
    CHECK(simulator::is_settled(staleness, simulator::measure_staleness(full.schedule)));
  }
  if (run.steady.found()) {
    const auto more =
        long_run({c.policy,
                  {c.sizes.stages, c.sizes.micro_batches, c.sizes.mini_batches + run.steady.period},
                  c.costs},
                 false, false);
    REQUIRE(more.ok());
    CHECK(ir::makespan(more.value().base.timeline) - expected.makespan == run.steady.period_ns);
  }
  return run.repeats;
}

enum class Links { Free, Latency, Full, Half, Bus, Switch, SharedBus, Overlap };

/// Stages of sizes that no sums of coincide, or all alike.
scheduler::CostModel costs_of(std::uint32_t stages, Links links, bool is_even) {
  const std::vector<Nanos> primes = {1009, 1511, 907, 1301, 2003, 811, 1709, 1201};
  scheduler::CostModel costs = equal_stages(stages, 1000, 2000);
  for (std::uint32_t k = 0; k < stages; ++k) {
    scheduler::StageCosts& stage = costs.stages[k];
    if (!is_even) {
      stage.forward = primes[k];
      stage.backward_input = primes[(k + 3) % primes.size()];
      stage.backward_weight = primes[(k + 5) % primes.size()];
      stage.step = 57;
      stage.predict = 31;
      stage.stash = 13;
    }
    stage.parameter_bytes = 1'000'000 + 1000 * k;
    stage.optimizer_bytes = 2'000'000;
    stage.saved_bytes = 300'000 + 7 * k;
  }
  costs.task_overhead = is_even ? 0 : 3;
  const bool has_bandwidth = links != Links::Free && links != Links::Latency;
  ir::LinkSpec spec;
  spec.latency = links == Links::Free ? 0 : is_even ? 1000 : 777;
  if (has_bandwidth) {
    spec.bandwidth_bytes_per_s = 1.3e9;
  }
  spec.duplex = links == Links::Half ? ir::Duplex::Half : ir::Duplex::Full;
  scheduler::set_every_link(costs, spec);
  if (links == Links::Overlap) {
    costs.overlap_slowdown.assign(stages, is_even ? 2.0 : 1.3);
  }
  if (links == Links::SharedBus) {
    costs.sharing = ir::Sharing::MaxMin;
  }
  if (links == Links::Bus || links == Links::Switch || links == Links::SharedBus) {
    costs.channels.resize(links == Links::Switch ? 2 * std::size_t{stages} : 1);
    costs.channels[0].bandwidth_bytes_per_s = 1.3e9;
    for (scheduler::LinkCosts& link : costs.links) {
      const std::uint32_t out = 2U * ir::index_of(link.from);
      const std::uint32_t in = 2U * ir::index_of(link.to) + 1;
      link.channels = {scheduler::ChannelId{links == Links::Switch ? std::min(out, in) : 0}};
      if (links == Links::Switch) {
        link.channels.push_back(scheduler::ChannelId{std::max(out, in)});
      }
    }
  }
  return costs;
}

TEST_CASE("long run: extrapolated figures are those of the full replay, on a grid") {
  std::uint64_t skipped = 0;
  std::uint64_t runs = 0;
  std::uint64_t fluid_skipped = 0;
  std::uint64_t fluid_runs = 0;
  for (const char* policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    for (const std::uint32_t stages : {1U, 2U, 4U, 5U}) {
      for (const std::uint32_t micro_batches : {1U, 3U}) {
        for (const Links links : {Links::Free, Links::Latency, Links::Full, Links::Half, Links::Bus,
                                  Links::Switch, Links::SharedBus, Links::Overlap}) {
          for (const bool is_even : {true, false}) {
            CAPTURE(policy);
            CAPTURE(stages);
            CAPTURE(micro_batches);
            CAPTURE(static_cast<int>(links));
            CAPTURE(is_even);
            const bool is_fluid = links == Links::SharedBus || links == Links::Overlap;
            ++(is_fluid ? fluid_runs : runs);
            (is_fluid ? fluid_skipped : skipped) +=
                check_equals_full_replay({policy,
                                          {stages, micro_batches, 75 + stages},
                                          costs_of(stages, links, is_even)}) > 0
                    ? 1
                    : 0;
          }
        }
      }
    }
  }

  CHECK(skipped == runs);
  // Where speeds change on the way, ends are rounded, and states come back later or not at all.
  CHECK(fluid_skipped > fluid_runs / 2);
}

}  // namespace
}  // namespace xpipe::tests
