// The example of docs/adding-a-policy.md, compiled and held to its promises. A test below keeps the
// page's quotation equal to the code between the two markers.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "ir/validate.h"
#include "scheduler/compile.h"
#include "scheduler/orders.h"
#include "scheduler/plan_builder.h"
#include "scheduler/policy.h"
#include "tests/policies/replay.h"

// example begins
namespace xpipe::policies {
namespace {

// Synchronous, in waves of `wave` micro-batches: a wave's forwards, then its backwards, the
// mini-batch's step after the last wave. Less in flight than GPipe, more bubble.
//
//   D = 2, T = 4, wave = 2   stage 0:  F0 F1 .  .  B0 B1 F2 F3 .  .  B2 B3|     | is the step
//                            stage 1:     F0 F1 B0 B1 .  .  F2 F3 B2 B3|
std::uint32_t wave_of(const scheduler::PlanRequest& request) {
  const auto wave = static_cast<std::uint32_t>(std::stoul(request.options.at("wave")));
  return std::min(wave, request.micro_batches);
}

ir::Result<ir::ComputePlan> plan_waves(const scheduler::PlanRequest& request) {
  const std::uint32_t size = request.micro_batches;
  const std::uint32_t wave = wave_of(request);
  scheduler::PlanBuilder plan(request);
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    for (std::uint32_t i = 0; i < request.mini_batches; ++i) {
      for (std::uint32_t first = 0; first < size; first += wave) {
        const std::uint32_t end = std::min(first + wave, size);
        for (std::uint32_t p = first; p < end; ++p) {
          plan.forward(k, i * size + p, plan.newest(k));
        }
        for (std::uint32_t p = first; p < end; ++p) {
          plan.backward(k, i * size + p, plan.newest(k));
        }
      }
      plan.step(k, i);
    }
  }
  return std::move(plan).take();
}

scheduler::Promises promise_waves(const scheduler::PlanRequest& request) {
  const std::uint32_t wave = wave_of(request);
  const std::uint64_t waves = (request.micro_batches + wave - 1) / wave;
  scheduler::Promises promises;
  promises.bubble_numerator = waves * (request.stages - 1);  // each wave fills and drains
  promises.bubble_denominator = request.micro_batches + promises.bubble_numerator;
  promises.stages.assign(request.stages, {.in_flight = wave, .versions_held = 1});
  promises.equals_sequential = scheduler::reads_as_sequential(promises.stages);
  return promises;
}

scheduler::Policy waves() {
  scheduler::Policy policy;
  policy.name = "waves";
  policy.summary = "GPipe in waves: fewer micro-batches in flight, more bubble";
  policy.source = "docs/adding-a-policy.md";
  policy.options = {
      {"wave", {"1", "2", "4"}, "2", "micro-batches whose forwards run before a backward", {}}};
  policy.promise_text = {.bubble = "c(D-1)/(T+c(D-1)), c = ceil(T/wave)",
                         .in_flight = "min(wave, T)",
                         .versions_held = "1",
                         .staleness = "0",
                         .prediction = "none; equals sequential training"};
  policy.plan = &plan_waves;
  policy.promises = &promise_waves;
  return policy;
}

}  // namespace
}  // namespace xpipe::policies

// example ends

namespace xpipe::tests {
namespace {

TEST_CASE("example policy: waves of two, drawn") {
  const auto schedule =
      scheduler::compile(policies::waves(), {2, 4, 1, {}}, scheduler::chain_of(2));
  REQUIRE(schedule.ok());
  CHECK(draw(schedule.value(), 0) == "0 1 _ _ |0| |1| 2 3 _ _ |2| |3|");
  CHECK(draw(schedule.value(), 1) == "0 1 |0| |1| _ _ 2 3 |2| |3|");
}

TEST_CASE("example policy: legal, and its promises hold for D, T <= 8") {
  for (const char* option : {"1", "2", "4"}) {
    for (std::uint32_t d = 1; d <= 8; ++d) {
      for (std::uint32_t t = 1; t <= 8; ++t) {
        CAPTURE(option);
        CAPTURE(d);
        CAPTURE(t);
        const scheduler::PlanRequest request{d, t, 3, {{"wave", option}}};
        const auto compiled =
            scheduler::compile(policies::waves(), request, scheduler::chain_of(d));
        REQUIRE(compiled.ok());
        const ir::Schedule& schedule = compiled.value();
        CHECK(ir::validate(schedule).empty());
        const scheduler::Promises promises = policies::waves().promises(request);
        for (std::uint32_t k = 0; k < d; ++k) {
          const StageReplay stage = replay_stage(schedule, k);
          CHECK(stage.in_flight == promises.stages[k].in_flight);
          CHECK(stage.versions_held == 1);
          CHECK(is_sequential(stage, t));
        }
        const auto total = static_cast<std::uint64_t>(makespan_in_slots(schedule, 1, 2));
        CHECK((total - 3 * 3 * t) * promises.bubble_denominator ==
              promises.bubble_numerator * total);
      }
    }
  }
}

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(XPIPE_SOURCE_DIR) + "/" + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_CASE("example policy: docs/adding-a-policy.md quotes this very code") {
  const std::string code = text_of("tests/policies/example_policy_test.cpp");
  const std::string begin = "// example begins\n";
  const std::size_t from = code.find("\n" + begin) + 1 + begin.size();
  const std::size_t to = code.find("\n// example ends") + 1;
  REQUIRE(from < to);
  CHECK(
      text_of("docs/adding-a-policy.md").find("```cpp\n" + code.substr(from, to - from) + "```") !=
      std::string::npos);
}

}  // namespace
}  // namespace xpipe::tests
