// Policy to schedule: lanes, messages and edges as drawn, and errors that name what is wrong.
#include "scheduler/compile.h"

#include <string>

#include <doctest/doctest.h>

#include "ir/text.h"
#include "ir/validate.h"
#include "policies/register_all.h"
#include "scheduler/plan_builder.h"

namespace xpipe::scheduler {
namespace {

using ir::StageId;

const PolicyRegistry& registry() {
  static const PolicyRegistry policies = [] {
    PolicyRegistry all;
    policies::register_all(all);
    return all;
  }();
  return policies;
}

ir::Result<ir::Schedule> compiled(const std::string& policy, const PlanRequest& request) {
  return compile(*registry().find(policy).value(), request, chain_of(request.stages));
}

std::string lane_text(const ir::Schedule& schedule, std::size_t lane) {
  std::string text;
  for (const ir::TaskId id : schedule.lanes[lane].order) {
    text += (text.empty() ? "" : " ") + ir::to_text(schedule.task(id));
  }
  return text;
}

bool has_edge(const ir::Schedule& schedule, const std::string& from, const std::string& to) {
  for (const ir::Edge& edge : schedule.edges) {
    if (ir::to_text(schedule.task(edge.from)) == from &&
        ir::to_text(schedule.task(edge.to)) == to) {
      return true;
    }
  }
  return false;
}

TEST_CASE("compile: two stages of gpipe, lanes and messages as drawn") {
  const auto schedule = compiled("gpipe", {.stages = 2, .micro_batches = 2, .mini_batches = 1});
  REQUIRE(schedule.ok());
  const ir::Schedule& s = schedule.value();
  //  compute 0   F0 F1 .. .. B0 B1 STEP0
  //  send 0>1      F0 F1
  //  compute 1        F0 F1 B0 B1 STEP0
  REQUIRE(s.lanes.size() == 6);
  CHECK(lane_text(s, 0) == "0F0[s0:v0] 0F1[s0:v0] 0B0[s0:v0] 0B1[s0:v0] 0STEP0[v0]");
  CHECK(lane_text(s, 1) == "1F0[s0:v0] 1F1[s0:v0] 1B0[s0:v0] 1B1[s0:v0] 1STEP0[v0]");
  CHECK(lane_text(s, 2) == "0SEND_F0 0SEND_F1");
  CHECK(lane_text(s, 3) == "1RECV_F0 1RECV_F1");
  CHECK(lane_text(s, 4) == "1SEND_B0 1SEND_B1");
  CHECK(lane_text(s, 5) == "0RECV_B0 0RECV_B1");
  CHECK(s.edges.size() == 12);
  CHECK(has_edge(s, "0F1[s0:v0]", "0SEND_F1"));
  CHECK(has_edge(s, "0SEND_F1", "1RECV_F1"));
  CHECK(has_edge(s, "1RECV_F1", "1F1[s0:v0]"));
  CHECK(has_edge(s, "1B0[s0:v0]", "1SEND_B0"));
  CHECK(has_edge(s, "0RECV_B0", "0B0[s0:v0]"));
}

TEST_CASE("compile: a tensor that skips a stage is a message of its own, with its bytes") {
  // stage 0 feeds 1 and 2, stage 1 feeds 2
  const StageGraph graph{.stages = 3,
                         .links = {{StageId{0}, StageId{1}, 100},
                                   {StageId{0}, StageId{2}, 7},
                                   {StageId{1}, StageId{2}, 50}}};
  const auto schedule = compile(*registry().find("gpipe").value(),
                                {.stages = 3, .micro_batches = 1, .mini_batches = 1}, graph);
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  CHECK(has_edge(schedule.value(), "0SEND_F0[>2:7B]", "2RECV_F0[<0:7B]"));
  CHECK(has_edge(schedule.value(), "2SEND_B0[>0:7B]", "0RECV_B0[<2:7B]"));
  CHECK(has_edge(schedule.value(), "0SEND_F0[100B]", "1RECV_F0[100B]"));
  CHECK(ir::validate(schedule.value()).empty());
}

TEST_CASE("compile: stages on one device exchange nothing") {
  ir::ComputePlan plan;
  plan.micro_batches = 1;
  plan.mini_batches = 1;
  plan.placement = {{ir::DeviceId{0}}, {ir::DeviceId{0}}};
  plan.devices = {{{ir::OpKind::Forward, StageId{0}, 0, {}},
                   {ir::OpKind::Forward, StageId{1}, 0, {}},
                   {ir::OpKind::Backward, StageId{1}, 0, {}},
                   {ir::OpKind::Step, StageId{1}, 0, {}},
                   {ir::OpKind::Backward, StageId{0}, 0, {}},
                   {ir::OpKind::Step, StageId{0}, 0, {}}}};
  const auto schedule = compile_plan(plan, chain_of(2), "by-hand", {});
  REQUIRE(schedule.ok());
  CHECK(schedule.value().lanes.size() == 1);
  CHECK(schedule.value().edges.empty());
  CHECK(ir::validate(schedule.value()).empty());
}

TEST_CASE("compile: one stage is sequential training, whatever the policy") {
  for (const Policy& policy : registry().all()) {
    CAPTURE(policy.name);
    const auto schedule =
        compile(policy, {.stages = 1, .micro_batches = 2, .mini_batches = 3}, chain_of(1));
    REQUIRE(schedule.ok());
    CHECK(schedule.value().lanes.size() == 1);
    CHECK(schedule.value().edges.empty());
  }
}

TEST_CASE("compile: a schedule costs at most 64 bytes a task") {
  for (const Policy& policy : registry().all()) {
    CAPTURE(policy.name);
    const auto schedule =
        compile(policy, {.stages = 8, .micro_batches = 8, .mini_batches = 64}, chain_of(8));
    REQUIRE(schedule.ok());
    CHECK(ir::heap_bytes_per_task(schedule.value()) <= 64.0);
  }
}

TEST_CASE("compile: the same request gives the same schedule") {
  const PlanRequest request{.stages = 4, .micro_batches = 3, .mini_batches = 5};
  for (const Policy& policy : registry().all()) {
    CHECK(compile(policy, request, chain_of(4)).value() ==
          compile(policy, request, chain_of(4)).value());
  }
}

TEST_CASE("compile: impossible sizes are refused all at once, naming the options") {
  const auto schedule = compiled("gpipe", {.stages = 0, .micro_batches = 0, .mini_batches = 0});
  REQUIRE_FALSE(schedule.ok());
  CHECK(schedule.error().kind == ir::ErrorKind::Usage);
  REQUIRE(schedule.error().diagnostics.size() == 3);
  CHECK(schedule.error().diagnostics[0].where == "--stages");
  CHECK(schedule.error().diagnostics[1].where == "--micro-batches");
  CHECK(schedule.error().diagnostics[2].where == "--mini-batches");
  const auto huge =
      compiled("gpipe", {.stages = 60000, .micro_batches = 1U << 24, .mini_batches = 1U << 24});
  REQUIRE_FALSE(huge.ok());
  CHECK(huge.error().diagnostics[0].message.find("too many") != std::string::npos);
}

TEST_CASE("compile: unknown options and values are refused all at once, with the legal ones") {
  const auto schedule = compiled(
      "xpipe", {.stages = 2,
                .micro_batches = 1,
                .mini_batches = 1,
                .options = {{"rouding", "floor"}, {"predict", "always"}, {"bias", "literal"}}});
  REQUIRE_FALSE(schedule.ok());
  REQUIRE(schedule.error().diagnostics.size() == 2);
  const ir::Diagnostic& value = schedule.error().diagnostics[0];
  CHECK(value.where == "--set predict=always");
  CHECK(value.message.find("both, forward, none") != std::string::npos);
  const ir::Diagnostic& name = schedule.error().diagnostics[1];
  CHECK(name.message.find("did you mean 'rounding'?") != std::string::npos);
}

TEST_CASE("compile: a policy's name that is a slip away is guessed") {
  const auto policy = registry().find("gpip");
  REQUIRE_FALSE(policy.ok());
  CHECK(policy.error().diagnostics[0].message.find("did you mean 'gpipe'?") != std::string::npos);
  CHECK(policy.error().diagnostics[0].message.find("spectrain") != std::string::npos);
  const auto strange = registry().find("zzzzzz");
  REQUIRE_FALSE(strange.ok());
  CHECK(strange.error().diagnostics[0].message.find("did you mean") == std::string::npos);
}

}  // namespace
}  // namespace xpipe::scheduler
