// Replicated stages: 1F1B-RR as drawn, its in-flight and version counts by hand, what holds for
// every policy over a grid of replicas, and the published promise that replication buys: a pipeline
// whose stages are equally fast per replica runs at the rate of its slowest stage.
#include "ir/replicas.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ir/text.h"
#include "scheduler/compile.h"
#include "scheduler/cost_model.h"
#include "simulator/simulate.h"
#include "tests/policies/replay.h"

namespace xpipe::tests {
namespace {

using scheduler::Options;
using scheduler::Passes;
using scheduler::PlanRequest;
using scheduler::Policy;
using Numbers = std::vector<std::uint32_t>;

Passes with_replicas(const Numbers& replicas, const Numbers& placement = {}) {
  const auto layout =
      scheduler::resolve_layout({.stages = static_cast<std::uint32_t>(replicas.size()),
                                 .devices = {},
                                 .placement = placement,
                                 .replicas = replicas});
  REQUIRE_MESSAGE(layout.ok(), layout.error().to_string());
  return {.layout = layout.value()};
}

ir::Result<ir::Schedule> replicated(const std::string& policy,
                                    const Numbers& replicas,
                                    std::uint32_t micro_batches,
                                    std::uint32_t mini_batches,
                                    const Options& options = {}) {
  const auto stages = static_cast<std::uint32_t>(replicas.size());
  return scheduler::compile(*registry().find(policy).value(),
                            {stages, micro_batches, mini_batches, options},
                            scheduler::chain_of(stages), with_replicas(replicas));
}

std::string lane_of_device(const ir::Schedule& schedule, std::size_t device, bool versions) {
  std::string text;
  for (const ir::TaskId id : schedule.lanes[device].order) {
    std::string token = ir::to_text(schedule.task(id));
    if (!versions) {
      token = token.substr(0, token.find('['));
    }
    text += (text.empty() ? "" : " ") + token;
  }
  return text;
}

TEST_CASE("replicas: 1F1B-RR of PipeDream on 2 + 1 devices, as drawn") {
  // stage 0 as one order: F0 F1 F2 B0 F3 B1|F4 B2 F5 B3|B4 B5|   3 in flight, | all-reduce and step
  const auto schedule = replicated("pipedream", {2, 1}, 1, 6);
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  CHECK(lane_of_device(schedule.value(), 0, true) ==
        "0F0[s0:v0] 0F2[s0:v0] 0B0[s0:v0] 0ALLREDUCE1 0STASH1[s0:v0>s1] 0STEP1[v0] "
        "0F4[s0:v1] 0B2[s1:v0] 0RELEASE2[s1] 0ALLREDUCE3 0STASH3[s0:v1>s1] 0STEP3[v1] "
        "0B4[s1:v1] 0RELEASE4[s1] 0ALLREDUCE5 0STEP5[v2]");
  CHECK(lane_of_device(schedule.value(), 1, false) ==
        "0F1 0F3 0B1 0ALLREDUCE1 0STASH1 0STEP1 0F5 0B3 0RELEASE3 0ALLREDUCE3 0STASH3 0STEP3 0B5 "
        "0RELEASE5 0ALLREDUCE5 0STEP5");
  CHECK(lane_of_device(schedule.value(), 2, false) ==
        "1F0 1B0 1STEP0 1F1 1B1 1STEP1 1F2 1B2 1STEP2 1F3 1B3 1STEP3 1F4 1B4 1STEP4 1F5 1B5 "
        "1STEP5");
}

TEST_CASE("replicas: an all-reduce waits for what stands before the others") {
  const auto schedule = replicated("gpipe", {3}, 3, 1);
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  //  0F0 0B0 ALLREDUCE STEP, 0F1 0B1 ..., 0F2 0B2 ...: 3 x 2 edges, from the backwards
  CHECK(schedule.value().edges.size() == 6);
  for (const ir::Edge& edge : schedule.value().edges) {
    CHECK(schedule.value().task(edge.from).kind() == ir::TaskKind::Backward);
    CHECK(schedule.value().task(edge.to).kind() == ir::TaskKind::AllReduce);
    CHECK(schedule.value().task(edge.from).lane != schedule.value().task(edge.to).lane);
  }
}

TEST_CASE("replicas: the last step averages what is left of a stream that does not divide") {
  const auto schedule = replicated("pipedream", {3, 1}, 1, 4);
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  CHECK(lane_of_device(schedule.value(), 0, false).find("0STEP2") != std::string::npos);
  CHECK(lane_of_device(schedule.value(), 2, false).find("0ALLREDUCE3 0STEP3") != std::string::npos);
}

TEST_CASE("replicas: PipeDream admits as many mini-batches as the author's code (methods.md 3.1)") {
  // warm-up of stage k = (all ranks - 1 - ranks of the earlier stages) div (replicas of stage k)
  for (const Numbers& replicas :
       std::vector<Numbers>{{2, 1}, {1, 2}, {2, 1, 1}, {3, 1}, {8, 4, 4}, {15, 1}, {2, 3, 2}}) {
    const std::uint32_t all = std::accumulate(replicas.begin(), replicas.end(), 0U);
    const auto schedule = replicated("pipedream", replicas, 1, 3 * all);
    REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
    std::uint32_t earlier = 0;
    for (std::uint32_t k = 0; k < replicas.size(); ++k) {
      for (std::uint32_t r = 0; r < replicas[k]; ++r) {
        CAPTURE(k);
        const StageReplay stage = replay_stage(schedule.value(), k, r);
        CHECK(stage.in_flight == (all - 1 - earlier) / replicas[k] + 1);
      }
      earlier += replicas[k];
    }
  }
}

/// Staleness (design.md §3) by hand: steps of the stage before mini-batch i, minus the version.
std::uint32_t largest_staleness(const std::vector<PassRead>& reads,
                                const std::vector<std::uint32_t>& steps_before,
                                std::uint32_t micro_batches,
                                std::uint32_t replica,
                                std::uint32_t replicas) {
  std::uint32_t largest = 0;
  for (std::uint32_t j = replica; j < reads.size(); j += replicas) {
    largest = std::max(largest, steps_before[j / micro_batches] - reads[j].version);
  }
  return largest;
}

void check_replicated(const Policy& policy,
                      const Numbers& replicas,
                      const Numbers& placement,
                      std::uint32_t t,
                      std::uint32_t n,
                      const Options& options) {
  const auto stages = static_cast<std::uint32_t>(replicas.size());
  Passes passes = with_replicas(replicas, placement);
  passes.sends = n % 2 == 0 ? scheduler::Sends::Rendezvous : scheduler::Sends::Eager;
  passes.recompute = t % 2 == 0 ? scheduler::Recompute::Stage : scheduler::Recompute::None;
  const auto compiled =
      scheduler::compile(policy, {stages, t, n, options}, scheduler::chain_of(stages), passes);
  REQUIRE_MESSAGE(compiled.ok(), compiled.error().to_string());
  const ir::Schedule& schedule = compiled.value();
  CHECK(start_slots(schedule, 1, 2).size() == schedule.tasks.size());

  PlanRequest complete{stages, schedule.micro_batches, n,
                       scheduler::resolve_options(policy, options).value(), replicas};
  const scheduler::Promises promises = policy.promises(complete);
  REQUIRE(promises.stages.size() == stages);
  const ir::Replicas all(schedule);
  for (const ir::Task& task : schedule.tasks) {
    if (ir::weights_read(task) != nullptr) {
      const auto replica = all.of(task) - all.begin(task.stage);
      CHECK(replica ==
            ir::index_of(*ir::micro_batch_of(task)) % replicas[ir::index_of(task.stage)]);
    }
  }
  for (std::uint32_t k = 0; k < stages; ++k) {
    const StageReplay first = replay_stage(schedule, k, 0);
    Numbers steps_before;
    std::uint32_t steps = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      steps_before.push_back(steps);
      for (std::size_t s = 0; s < first.order.size(); ++s) {
        steps += first.order[s] == 'S' && first.indices[s] == i ? 1 : 0;
      }
    }
    std::uint32_t forward = 0;
    for (std::uint32_t r = 0; r < replicas[k]; ++r) {
      CAPTURE(k);
      CAPTURE(r);
      const StageReplay stage = replay_stage(schedule, k, r);
      CHECK(stage.faults.empty());
      CHECK(stage.last_version == first.last_version);
      CHECK(stage.in_flight <= promises.stages[k].in_flight);
      CHECK(stage.versions_held <= promises.stages[k].versions_held);
      CHECK(schedule.stages[k].slots >= stage.versions_held);
      forward = std::max(forward, largest_staleness(stage.forwards, steps_before,
                                                    schedule.micro_batches, r, replicas[k]));
    }
    CHECK(forward == promises.stages[k].forward_staleness);
  }
}

TEST_CASE("replicas: every policy that has them keeps its promises on each replica") {
  const std::vector<std::pair<Numbers, Numbers>> layouts = {{{2}, {}},
                                                            {{1, 2}, {}},
                                                            {{2, 1}, {}},
                                                            {{2, 2}, {0, 1, 0, 1}},
                                                            {{3, 1}, {}},
                                                            {{2, 1, 1}, {}},
                                                            {{2, 3}, {0, 1, 2, 1, 0}},
                                                            {{1, 2, 1}, {0, 1, 2, 0}},
                                                            {{4, 2, 1}, {}},
                                                            {{2, 2, 2}, {}}};
  for (const Policy& policy : registry().all()) {
    if (policy.name == "spectrain") {
      continue;
    }
    for (const auto& [replicas, placement] : layouts) {
      for (const std::uint32_t t : {1U, 2U, 3U, 4U}) {
        for (const std::uint32_t n : {1U, 2U, 5U, 6U}) {
          INFO(policy.name, " T=", t, " N=", n, " stages=", replicas.size(), " first ", replicas[0],
               placement.empty() ? "" : " placed");
          check_replicated(policy, replicas, placement, t, n, {});
        }
      }
    }
  }
}

TEST_CASE("replicas: XPipe's options keep their promises, and all replicas read one prediction") {
  for (const char* predict : {"both", "forward", "none"}) {
    for (const std::uint32_t t : {1U, 2U, 4U}) {
      check_replicated(*registry().find("xpipe").value(), {2, 1, 2}, {}, t, 6,
                       {{"predict", predict}});
    }
  }
  const auto schedule = replicated("xpipe", {2, 1, 1}, 4, 6);
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  for (std::uint32_t j = 0; j < 24; ++j) {
    CAPTURE(j);
    const PassRead first = replay_stage(schedule.value(), 0, j / 4 * 4 % 2).forwards[j / 4 * 4];
    const PassRead own = replay_stage(schedule.value(), 0, j % 2).forwards[j];
    CHECK(own.version == first.version);
    CHECK(own.distance == first.distance);
  }
}

TEST_CASE("replicas: refused where a policy has none, or versions would not fit") {
  const auto spectrain = replicated("spectrain", {2, 1}, 1, 4);
  REQUIRE_FALSE(spectrain.ok());
  CHECK(spectrain.error().kind == ir::ErrorKind::Usage);
  CHECK(spectrain.error().to_string().find("--replicas: policy 'spectrain' has no replicas") == 0);
  CHECK(replicated("spectrain", {1, 1}, 1, 4).ok());

  const auto uneven = replicated("pipedream", {2, 1}, 1, 4, {{"vertical-sync", "true"}});
  REQUIRE_FALSE(uneven.ok());
  CHECK(uneven.error().kind == ir::ErrorKind::Usage);
  CHECK(uneven.error().to_string().find("found 1 for stage 1 and 2 for stage 0") !=
        std::string::npos);
  CHECK(replicated("pipedream", {2, 2}, 1, 8, {{"vertical-sync", "true"}}).ok());
}

/// Time of one mini-batch in steady state when stage k takes replicas[k] x (1000 + 2000) ns.
double balanced_time(const Numbers& replicas, ir::Nanos all_reduce) {
  const auto stages = static_cast<std::uint32_t>(replicas.size());
  const std::uint32_t devices = std::accumulate(replicas.begin(), replicas.end(), 0U);
  scheduler::CostModel costs = scheduler::uniform_costs(stages, devices, 1000, 2000, {});
  std::uint32_t period = 1;
  for (std::uint32_t k = 0; k < stages; ++k) {
    costs.stages[k].forward *= replicas[k];
    costs.stages[k].backward_input *= replicas[k];
    costs.stages[k].backward_weight *= replicas[k];
    costs.stages[k].all_reduce = replicas[k] > 1 ? all_reduce : 0;
    period = std::lcm(period, replicas[k]);
  }
  const auto makespan = [&](std::uint32_t n) {
    return ir::makespan(
        simulator::simulate(replicated("pipedream", replicas, 1, n).value(), costs));
  };
  const std::uint32_t warm = 4 * period * ((devices + period - 1) / period);
  return static_cast<double>(makespan(warm + 8 * period) - makespan(warm)) / (8.0 * period);
}

// PipeDream (SOSP'19), 3.1 and 3.3: with a stage's replicas in proportion to its time, 1F1B-RR
// keeps all busy; the configurations are those its runtime publishes (methods.md 3.3). In flight
// are just as many mini-batches as that takes (Little's law: latency / rate), so nothing is left to
// hide the waits of replicas for each other at a step. With one replicated stage at the input none
// shows; behind other stages a replica waits for a forward that these admit only after a backward
// of another replica, and the step waits for both: 3 replicas behind 8 stages lose more than half.
TEST_CASE("replicas: published configurations against the rate of their slowest stage") {
  struct Case {
    Numbers replicas;
    double least;
    double most;
  };

  for (const Case& c : std::vector<Case>{{{15, 1}, 3000, 3060},
                                         {{3, 1}, 3000, 3060},
                                         {{2, 1, 1}, 3000, 3300},
                                         {{8, 4, 4}, 3000, 3800},
                                         {{1, 1, 1, 1, 1, 1, 1, 1, 3, 1}, 6000, 7100}}) {
    CAPTURE(c.replicas.size());
    CAPTURE(c.replicas[0]);
    const double time = balanced_time(c.replicas, 0);
    CHECK(time >= c.least);
    CHECK(time <= c.most);
  }
}

TEST_CASE("replicas: an all-reduce costs its time once for the mini-batches that it averages") {
  // Stage 0 takes 15 x 3000 ns and 1500 ns to sum, for 15 mini-batches.
  const double time = balanced_time({15, 1}, 1500);
  CHECK(time >= 3000.0 + 1500.0 / 15);
  CHECK(time <= (3000.0 + 1500.0 / 15) * 1.02);
}

TEST_CASE("replicas: a schedule costs at most 64 bytes a task") {
  for (const Numbers& replicas : std::vector<Numbers>{{15, 1}, {8, 4, 4}, {2, 1, 1}, {16, 16}}) {
    for (const char* policy : {"pipedream", "xpipe", "gpipe"}) {
      CAPTURE(policy);
      CAPTURE(replicas[0]);
      const auto schedule = replicated(policy, replicas, 32, 64);
      REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
      CHECK(ir::heap_bytes_per_task(schedule.value()) <= 64.0);
    }
  }
}

TEST_CASE("replicas: a schedule in text and JSON is the same schedule") {
  for (const char* policy : {"pipedream", "xpipe", "gpipe"}) {
    const auto schedule = replicated(policy, {2, 1, 2}, 2, 5);
    REQUIRE(schedule.ok());
    const auto back = ir::schedule_from_text(ir::schedule_to_text(schedule.value()), "");
    REQUIRE_MESSAGE(back.ok(), back.error().to_string());
    CHECK(back.value() == schedule.value());
  }
}

}  // namespace
}  // namespace xpipe::tests
