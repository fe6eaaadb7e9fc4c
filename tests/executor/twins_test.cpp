// Twins: the executor on virtual time and the simulator, written apart, give the same start and end
// for every task, on any schedule and any costs.
#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "executor/engine.h"
#include "executor/virtual_backend.h"
#include "ir/text.h"
#include "scheduler/compile.h"
#include "scheduler/cost_model.h"
#include "simulator/simulate.h"
#include "tests/executor/schedules.h"

namespace xpipe::tests {

namespace {

/// Uneven costs below `bound`; a small bound makes many things happen at the same instant.
scheduler::CostModel random_costs(std::uint32_t stages, ir::Nanos bound, std::mt19937& random) {
  const auto below = [&random](ir::Nanos limit) {
    return static_cast<ir::Nanos>(random() % static_cast<std::uint32_t>(limit));
  };
  scheduler::CostModel costs;
  for (std::uint32_t k = 0; k < stages; ++k) {
    scheduler::StageCosts stage;
    stage.forward = below(bound);
    stage.backward_input = below(bound);
    stage.backward_weight = below(bound);
    stage.step = below(bound);
    stage.predict = below(bound);
    stage.stash = below(bound);
    stage.all_reduce = below(bound);
    stage.sum_tied = below(bound);
    stage.clip_norm = below(bound);
    costs.stages.push_back(stage);
  }
  costs.task_overhead = below(3);
  for (std::uint32_t from = 0; from < stages; ++from) {
    for (std::uint32_t to = 0; to < stages; ++to) {
      if (from == to) {
        continue;
      }
      scheduler::LinkCosts link;
      link.from = ir::DeviceId{static_cast<std::uint16_t>(from)};
      link.to = ir::DeviceId{static_cast<std::uint16_t>(to)};
      link.spec.latency = below(bound);
      // Both directions of a pair alike: by the smaller device.
      link.spec.duplex = std::min(from, to) % 3 == 0 ? ir::Duplex::Full : ir::Duplex::Half;
      if (below(4) != 0) {  // else infinite: transfers of no time
        link.spec.bandwidth_bytes_per_s = 1e12 / static_cast<double>(1 + below(bound));
      }
      costs.links.push_back(link);
    }
  }
  scheduler::add_half_duplex_channels(costs);
  return costs;
}

/// And channels that several links hold, first come or shared, launches, and compute that transfers
/// slow down. Transfers and tasks of no time are frequent with a small bound.
scheduler::CostModel any_costs(std::uint32_t stages, ir::Nanos bound, std::mt19937& random) {
  scheduler::CostModel costs = random_costs(stages, bound, random);
  const auto first = static_cast<std::uint32_t>(costs.channels.size());
  for (std::uint32_t c = 0; c < random() % 4; ++c) {
    costs.channels.push_back({"shared", std::nullopt});
    if (random() % 4 != 0) {
      costs.channels.back().bandwidth_bytes_per_s =
          1e12 / static_cast<double>(1 + random() % static_cast<std::uint32_t>(bound));
    }
  }
  for (scheduler::LinkCosts& link : costs.links) {
    for (std::uint32_t c = first; c < costs.channels.size(); ++c) {
      if (random() % 2 == 0) {
        link.channels.push_back(scheduler::ChannelId{c});
      }
    }
  }
  costs.sharing = random() % 2 == 0 ? ir::Sharing::FirstCome : ir::Sharing::MaxMin;
  const bool slows_down = random() % 2 == 0;
  for (std::uint32_t d = 0; d < stages; ++d) {
    costs.launch_overhead.push_back(random() % 4);
    if (slows_down) {
      costs.overlap_slowdown.push_back(
          random() % 3 == 0 ? 1.0 : 1.0 + static_cast<double>(random() % 100) / 37.0);
    }
  }
  return costs;
}

std::vector<const scheduler::Policy*> pointers_to(const std::vector<scheduler::Policy>& policies) {
  std::vector<const scheduler::Policy*> pointers;
  for (const scheduler::Policy& policy : policies) {
    pointers.push_back(&policy);
  }
  return pointers;
}

void check_twins(const ir::Schedule& schedule, const scheduler::CostModel& costs) {
  const ir::Timeline simulated = simulator::simulate(schedule, costs);
  executor::VirtualBackend backend(costs);
  const auto run = executor::run(schedule, executor::no_op_handlers(), backend);
  REQUIRE_MESSAGE(run.ok(), run.status().error().to_string());
  if (run.value() == simulated) {
    return;
  }
  REQUIRE(run.value().spans.size() == simulated.spans.size());
  for (std::size_t i = 0; i < simulated.spans.size(); ++i) {
    const ir::Span& ours = run.value().spans[i];
    const ir::Span& theirs = simulated.spans[i];
    if (ours != theirs) {
      FAIL_CHECK(ir::to_text(schedule.tasks[i]), " virtual ", ours.start, "..", ours.end,
                 ", simulated ", theirs.start, "..", theirs.end);
      return;
    }
  }
}

}  // namespace

TEST_CASE("twins: virtual equals the simulator span by span, for every policy on a grid") {
  std::mt19937 random(1911);
  std::size_t tasks = 0;
  for (const scheduler::Policy& policy : all_policies()) {
    for (std::uint32_t stages = 1; stages <= 8; ++stages) {
      for (const std::uint32_t micro_batches : {1U, 2U, 3U, 5U, 8U}) {
        for (const std::uint32_t mini_batches : {1U, 2U, 7U}) {
          const ir::Schedule schedule = compiled(policy, stages, micro_batches, mini_batches);
          tasks += schedule.tasks.size();
          CAPTURE(policy.name);
          CAPTURE(stages);
          CAPTURE(micro_batches);
          CAPTURE(mini_batches);
          for (const ir::Nanos bound : {1, 3, 1000}) {
            check_twins(schedule, random_costs(stages, bound, random));
          }
        }
      }
    }
  }
  CHECK(tasks > 100'000);
}

TEST_CASE("twins: every option of every policy, too") {
  std::mt19937 random(2105);
  for (const scheduler::Policy& policy : all_policies()) {
    for (const scheduler::OptionSpec& option : policy.options) {
      for (const std::string& value : option.values) {
        const ir::Schedule schedule = compiled(policy, 4, 2, 6, 1000, {{option.name, value}});
        CAPTURE(policy.name);
        CAPTURE(value);
        check_twins(schedule, random_costs(4, 50, random));
      }
    }
  }
}

TEST_CASE("twins: placements, replicas, recomputes and sends that wait") {
  std::mt19937 random(1806);
  std::size_t all_reduces = 0;
  const std::vector<std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>>> layouts = {
      {{0, 1, 1, 0}, {1, 1, 1, 1}},
      {{0, 0, 1, 1}, {1, 1, 1, 1}},
      {{}, {2, 1, 1}},
      {{}, {3, 1}},
      {{}, {1, 2}},
      {{0, 1, 0, 1}, {2, 2}},
      {{0, 1, 2, 0}, {1, 2, 1}}};
  for (const scheduler::Policy& policy : all_policies()) {
    for (const auto& [placement, replicas] : layouts) {
      for (const auto sends : {scheduler::Sends::Eager, scheduler::Sends::Rendezvous}) {
        for (const std::uint32_t mini_batches : {1U, 2U, 7U}) {
          const auto stages = static_cast<std::uint32_t>(replicas.size());
          scheduler::Passes passes = {.layout = scheduler::resolve_layout({.stages = stages,
                                                                           .devices = {},
                                                                           .placement = placement,
                                                                           .replicas = replicas})
                                                    .value(),
                                      .recompute = mini_batches == 2 ? scheduler::Recompute::Stage
                                                                     : scheduler::Recompute::None,
                                      .sends = sends};
          const auto schedule = scheduler::compile(
              policy,
              {.stages = stages, .micro_batches = 3, .mini_batches = mini_batches, .options = {}},
              scheduler::chain_of(stages), passes);
          if (!schedule.ok() && policy.name == "spectrain") {
            continue;  // It has no replicas.
          }
          REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
          for (const ir::Task& task : schedule.value().tasks) {
            all_reduces += task.kind() == ir::TaskKind::AllReduce ? 1 : 0;
          }
          CAPTURE(policy.name);
          CAPTURE(mini_batches);
          for (const ir::Nanos bound : {1, 3, 1000}) {
            check_twins(schedule.value(), random_costs(4, bound, random));
            check_twins(schedule.value(), any_costs(4, bound, random));
          }
        }
      }
    }
  }
  CHECK(all_reduces > 0);
}

TEST_CASE("twins: clips by the norm over all stages, and tied weights") {
  std::mt19937 random(4711);
  const auto gpipe = std::ranges::find(all_policies(), "gpipe", &scheduler::Policy::name);
  REQUIRE(gpipe != all_policies().end());
  std::size_t exchanges = 0;
  for (const auto& [placement, replicas] :
       std::vector<std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>>>{
           {{}, {1, 1, 1, 1}}, {{0, 1, 1, 0}, {1, 1, 1, 1}}, {{0, 0}, {1, 1}}, {{}, {1, 2, 1}}}) {
    const auto stages = static_cast<std::uint32_t>(replicas.size());
    const scheduler::Layout layout =
        scheduler::resolve_layout(
            {.stages = stages, .devices = {}, .placement = placement, .replicas = replicas})
            .value();
    scheduler::StageGraph graph = scheduler::chain_of(stages);
    graph.ties = {{ir::StageId{0}, ir::StageId{static_cast<std::uint16_t>(stages - 1)}, 8}};
    for (const std::uint32_t mini_batches : {1U, 3U}) {
      const auto schedule = scheduler::compile(
          *gpipe,
          {.stages = stages, .micro_batches = 3, .mini_batches = mini_batches, .options = {}},
          graph, {.layout = layout, .clip_norm = 1.0});
      REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
      for (const ir::Task& task : schedule.value().tasks) {
        exchanges += task.kind() >= ir::TaskKind::SumTied ? 1 : 0;
      }
      for (const ir::Nanos bound : {1, 3, 1000}) {
        check_twins(schedule.value(), random_costs(4, bound, random));
        check_twins(schedule.value(), any_costs(4, bound, random));
      }
    }
  }
  CHECK(exchanges == (4 + 2 + 4 + 2 + 2 + 2 + 4 + 2) * (1 + 3));
}

TEST_CASE("twins: any schedule on any costs: shared links, max-min, overlap, launches") {
  CHECK(rc::check("equal span by span", [] {
    const scheduler::Policy& policy = **rc::gen::elementOf(pointers_to(all_policies()));
    const auto stages = *rc::gen::inRange<std::uint32_t>(1, 8);
    const auto micro_batches = *rc::gen::inRange<std::uint32_t>(1, 5);
    const auto mini_batches = *rc::gen::inRange<std::uint32_t>(1, 6);
    const auto bound = *rc::gen::element<ir::Nanos>(1, 2, 5, 1000, 1'000'000'000);
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    const ir::Schedule schedule =
        compiled(policy, stages, micro_batches, mini_batches, 1 + random() % 3000);
    check_twins(schedule, any_costs(stages, bound, random));
  }));
}

TEST_CASE("twins: half-duplex links make a difference, so the comparison is not empty") {
  const ir::Schedule schedule = compiled("xpipe", 4, 2, 6);
  ir::LinkSpec link;
  link.bandwidth_bytes_per_s = 1e9;
  scheduler::CostModel full = scheduler::uniform_costs(4, 4, 100, 200, link);
  link.duplex = ir::Duplex::Half;
  const scheduler::CostModel half = scheduler::uniform_costs(4, 4, 100, 200, link);
  check_twins(schedule, full);
  check_twins(schedule, half);
  CHECK(simulator::simulate(schedule, full) != simulator::simulate(schedule, half));
  scheduler::CostModel shared = half;
  shared.sharing = ir::Sharing::MaxMin;
  check_twins(schedule, shared);
  CHECK(simulator::simulate(schedule, shared) != simulator::simulate(schedule, half));
  scheduler::CostModel slowed = full;
  slowed.overlap_slowdown.assign(4, 1.5);
  check_twins(schedule, slowed);
  CHECK(ir::makespan(simulator::simulate(schedule, slowed)) >
        ir::makespan(simulator::simulate(schedule, full)));
}

}  // namespace xpipe::tests
