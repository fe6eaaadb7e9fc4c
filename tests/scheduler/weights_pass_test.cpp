// The weights pass, drawn: what a stage's order becomes once copies have slots.
#include "scheduler/weights_pass.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ir/text.h"
#include "scheduler/plan_builder.h"

namespace xpipe::scheduler {
namespace {

using ir::Pass;

/// The tasks of device 0, one text.
std::string drawn(const ir::Result<ComputeLanes>& lanes) {
  REQUIRE_MESSAGE(lanes.ok(), lanes.error().to_string());
  std::string text;
  for (const ir::Task& task : lanes.value().devices[0]) {
    text += (text.empty() ? "" : " ") + ir::to_text(task);
  }
  return text;
}

TEST_CASE("weights pass: passes that read the newest weights need no copy") {
  PlanBuilder plan(1, 1, 2);
  for (std::uint32_t i = 0; i < 2; ++i) {
    plan.forward(0, i, plan.newest(0));
    plan.backward(0, i, plan.newest(0));
    plan.step(0, i);
  }
  const auto lanes = assign_weights(std::move(plan).take());
  CHECK(drawn(lanes) == "0F0[s0:v0] 0B0[s0:v0] 0STEP0[v0] 0F1[s0:v1] 0B1[s0:v1] 0STEP1[v1]");
  CHECK(lanes.value().slots[0] == 1);
}

TEST_CASE("weights pass: a version with readers left is stashed just before the step") {
  // Two mini-batches in flight, each backward on its forward's weights (weight stashing).
  PlanBuilder plan(1, 1, 2);
  plan.forward(0, 0, plan.newest(0));
  plan.forward(0, 1, plan.newest(0));
  plan.backward(0, 0, PlanBuilder::version(0));
  plan.step(0, 0);
  plan.backward(0, 1, PlanBuilder::version(0));
  plan.step(0, 1);
  const auto lanes = assign_weights(std::move(plan).take());
  CHECK(drawn(lanes) ==
        "0F0[s0:v0] 0F1[s0:v0] 0B0[s0:v0] 0STASH0[s0:v0>s1] 0STEP0[v0] "
        "0B1[s1:v0] 0RELEASE1[s1] 0STEP1[v1]");
  CHECK(lanes.value().slots[0] == 2);
}

TEST_CASE("weights pass: the first reader of a predicted copy makes it, the others reuse it") {
  // Mini-batch 1 has two micro-batches; a step falls between their forwards.
  PlanBuilder plan(1, 2, 2);
  plan.forward(0, 0, plan.newest(0));
  plan.forward(0, 1, plan.newest(0));
  const ir::WantedWeights copy = PlanBuilder::predicted(0, 1, Pass::Forward, 1);
  plan.forward(0, 2, copy);
  plan.backward(0, 0, plan.newest(0));
  plan.backward(0, 1, plan.newest(0));
  plan.step(0, 0);
  plan.forward(0, 3, copy);
  plan.backward(0, 2, PlanBuilder::predicted(1, 1, Pass::Backward, 1));
  plan.backward(0, 3, PlanBuilder::predicted(1, 1, Pass::Backward, 1));
  plan.step(0, 1);
  CHECK(drawn(assign_weights(std::move(plan).take())) ==
        "0F0[s0:v0] 0F1[s0:v0] 0PREDICT_F1[s0:v0>s1+1] 0F2[s1:v0+1] "
        "0B0[s0:v0] 0B1[s0:v0] 0STEP0[v0] 0F3[s1:v0+1] "
        "0PREDICT_B1[s0:v1>s1+1] 0B2[s1:v1+1] 0B3[s1:v1+1] 0STEP1[v1]");
}

TEST_CASE("weights pass: a copy of distance 0 is the master until a step overwrites it") {
  PlanBuilder plan(1, 2, 2);
  plan.forward(0, 0, plan.newest(0));
  plan.forward(0, 1, plan.newest(0));
  const ir::WantedWeights copy = PlanBuilder::predicted(0, 0, Pass::Forward, 1);
  plan.forward(0, 2, copy);
  plan.backward(0, 0, plan.newest(0));
  plan.backward(0, 1, plan.newest(0));
  plan.step(0, 0);
  plan.forward(0, 3, copy);
  CHECK(drawn(assign_weights(std::move(plan).take())) ==
        "0F0[s0:v0] 0F1[s0:v0] 0F2[s0:v0] 0B0[s0:v0] 0B1[s0:v0] "
        "0STASH0[s0:v0>s1] 0STEP0[v0] 0F3[s1:v0] 0RELEASE1[s1]");
}

TEST_CASE("weights pass: slots of copies that are done are used again") {
  PlanBuilder plan(1, 1, 4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    plan.forward(0, i, PlanBuilder::predicted(i, 1, Pass::Forward, i));
    plan.backward(0, i, PlanBuilder::predicted(i, 2, Pass::Backward, i));
    plan.step(0, i);
  }
  const auto lanes = assign_weights(std::move(plan).take());
  REQUIRE(lanes.ok());
  CHECK(lanes.value().slots[0] == 2);
}

TEST_CASE("weights pass: every op that wants weights nobody has is named") {
  PlanBuilder plan(1, 1, 3);
  plan.forward(0, 0, PlanBuilder::version(2));  // not there yet
  plan.backward(0, 0, plan.newest(0));
  plan.step(0, 0);
  plan.forward(0, 1, PlanBuilder::predicted(0, 1, Pass::Forward, 1));  // the master has moved on
  plan.forward(0, 2, PlanBuilder::version(9));                         // more than all steps
  const auto lanes = assign_weights(std::move(plan).take());
  REQUIRE_FALSE(lanes.ok());
  CHECK(lanes.error().kind == ir::ErrorKind::Illegal);
  // 0F2 is found while last reads are looked for; nothing else is looked at then.
  REQUIRE(lanes.error().diagnostics.size() == 1);
  CHECK(lanes.error().diagnostics[0].where == "0F2");
  CHECK(lanes.error().diagnostics[0].message.find("version 9") != std::string::npos);

  PlanBuilder second(1, 1, 3);
  second.forward(0, 0, PlanBuilder::version(2));
  second.step(0, 0);
  second.forward(0, 1, PlanBuilder::predicted(0, 1, Pass::Forward, 1));
  const auto faults = assign_weights(std::move(second).take());
  REQUIRE_FALSE(faults.ok());
  REQUIRE(faults.error().diagnostics.size() == 2);
  CHECK(faults.error().diagnostics[0].where == "0F0");
  CHECK(faults.error().diagnostics[1].where == "0F1");
  CHECK(faults.error().diagnostics[1].message.find("the master is at version 1") !=
        std::string::npos);
}

}  // namespace
}  // namespace xpipe::scheduler
