#include "ir/validate.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "ir/text.h"
#include "tests/ir/schedules.h"

namespace xpipe::ir {

namespace {

using tests::edited;
using tests::Edits;
using tests::kOneStage;
using tests::kTwoLanes;
using tests::kTwoStages;
using tests::parsed;

/// A schedule with one fault, and how that is told.
struct Broken {
  std::string_view code;
  std::string_view base;
  Edits edits;
  std::string_view where;
  std::string_view says;
  /// For what a .tasks file cannot say.
  std::function<void(Schedule&)> change = nullptr;
  std::string_view also = "";  ///< the code of a second fault that cannot but come with it
};

TaskId task_called(const Schedule& schedule, std::string_view text) {
  for (std::uint32_t i = 0; i < schedule.tasks.size(); ++i) {
    if (to_text(schedule.tasks[i]) == text) {
      return TaskId{i};
    }
  }
  FAIL("no task " << text);
  return {};
}

const std::vector<Broken>& broken_schedules() {
  static const std::vector<Broken> kBroken = {
      // Shape.
      {"no-tasks",
       kTwoStages,
       {{"mini-batches 1", "mini-batches 0"}},
       "schedule",
       "has 0 mini-batches"},
      {"id-range",
       kTwoStages,
       {{"stage 1 device 1", "stage 1 device 2"}},
       "stage 1",
       "device 2 does not exist: expected one of 0 to 1"},
      {"id-range",
       kOneStage,
       {{"0F0[s0:v0]", "0F2[s0:v0]"}},
       "0F2[s0:v0]",
       "micro-batch 2 does not exist: expected one of 0 to 1"},
      {"id-range",
       kOneStage,
       {{"0STEP1[v1]", "0STEP7[v1]"}},
       "0STEP7[v1]",
       "mini-batch 7 does not exist: expected one of 0 to 1"},
      {"id-range",
       kOneStage,
       {{"0F0[s0:v0]", "3F0[s0:v0]"}},
       "3F0[s0:v0]",
       "stage 3 does not exist: expected one of 0 to 0"},
      {"id-range",
       kTwoStages,
       {{"0SEND_F1[8B]", "0SEND_F1[>5:8B]"}, {"0F1>0SEND_F1 0SEND_F1>1RECV_F1 ", ""}},
       "0SEND_F1[>5:8B]",
       "peer stage 5 does not exist"},
      {"id-range",
       kOneStage,
       {},
       "lane \"compute 0\"",
       "task 99 does not exist",
       [](Schedule& s) { s.lanes[0].order.push_back(TaskId{99}); }},
      {"id-range",
       kTwoStages,
       {},
       "edge 12",
       "task 99 does not exist",
       [](Schedule& s) { s.edges.push_back({TaskId{99}, TaskId{0}}); }},
      {"task-not-in-lane",
       kOneStage,
       {},
       "0STEP1[v1]",
       "stands in no lane",
       [](Schedule& s) { s.lanes[0].order.pop_back(); }},
      {"task-twice",
       kOneStage,
       {},
       "0STEP1[v1]",
       "stands a second time in lane \"compute 0\"",
       [](Schedule& s) { s.lanes[0].order.push_back(s.lanes[0].order.back()); }},
      {"lane-mismatch",
       kTwoStages,
       {},
       "0RECV_B0",
       "stands in lane 5 and says lane 3",
       [](Schedule& s) { s.tasks[index_of(task_called(s, "0RECV_B0"))].lane = LaneId{3}; }},
      {"lane-kind",
       kTwoStages,
       {{"send 0>1: 0SEND_F0 0SEND_F1[8B]", "send 0>1: 0SEND_F0"},
        {"compute 0: 0F0[s0:v0] 0F1[s0:v0]", "compute 0: 0F0[s0:v0] 0F1[s0:v0] 0SEND_F1[8B]"},
        {"0F1>0SEND_F1 ", ""}},
       "0SEND_F1[8B]",
       "stands in lane \"compute 0\": expected a send lane"},
      {"lane-device",
       kTwoStages,
       {{"1B1[s0:v0] 1STEP0[v0]", "1B1[s0:v0]"}, {"0STEP0[v0]", "0STEP0[v0] 1STEP0[v0]"}},
       "1STEP0[v0]",
       "expected device 1, where stage 1 is"},
      {"lane-peer",
       kTwoStages,
       {},
       "lane \"compute 0\"",
       "has peer 1: expected the lane's own",
       [](Schedule& s) { s.lanes[0].peer = DeviceId{1}; }},
      {"lane-twice",
       kTwoStages,
       {{"send 1>0: 1SEND_B0 1SEND_B1", "send 1>0: 1SEND_B0\nsend 1>0: 1SEND_B1"}},
       "lane \"send 1>0\"",
       "stands there twice"},
      {"edge-within-lane",
       kTwoStages,
       {{"edges: 0F0>0SEND_F0", "edges: 0F0>0F1 0F0>0SEND_F0"}},
       "0F0[s0:v0]>0F1[s0:v0]",
       "joins two tasks of one lane"},
      {"edge-duplicate",
       kTwoStages,
       {{"edges: 0F0>0SEND_F0", "edges: 0F0>0SEND_F0 0F0>0SEND_F0"}},
       "0F0[s0:v0]>0SEND_F0",
       "is given twice"},
      {"edge-order",
       kTwoStages,
       {},
       "0F0[s0:v0]>0SEND_F0",
       "stands behind a larger edge",
       [](Schedule& s) { std::swap(s.edges[0], s.edges[1]); }},
      {"cycle",
       kTwoStages,
       {{"compute 1: 1F0[s0:v0] 1F1[s0:v0] 1B0[s0:v0]",
         "compute 1: 1F0[s0:v0] 1B0[s0:v0] 1F1[s0:v0]"},
        {"compute 0: 0F0[s0:v0] 0F1[s0:v0] 0B0[s0:v0] 0B1[s0:v0]",
         "compute 0: 0F0[s0:v0] 0B0[s0:v0] 0B1[s0:v0] 0F1[s0:v0]"}},
       "0B1[s0:v0]",
       "8 tasks wait for each other in a ring:\n"
       "  device 0: 0B1[s0:v0] waits for 0RECV_B1, by an edge\n"
       "  device 0: 0RECV_B1 waits for 1SEND_B1, by an edge\n"
       "  device 1: 1SEND_B1 waits for 1B1[s0:v0], by an edge\n"
       "  device 1: 1B1[s0:v0] waits for 1F1[s0:v0], before it in lane \"compute 1\"\n"
       "  device 1: 1F1[s0:v0] waits for 1RECV_F1[8B], by an edge\n"
       "  device 1: 1RECV_F1[8B] waits for 0SEND_F1[8B], by an edge\n"
       "  device 0: 0SEND_F1[8B] waits for 0F1[s0:v0], by an edge\n"
       "  device 0: 0F1[s0:v0] waits for 0B1[s0:v0], before it in lane \"compute 0\"\n"},
      // Meaning.
      {"missing-task",
       kTwoStages,
       {{"0B0[s0:v0] 0B1[s0:v0]", "0B0[s0:v0]"}, {" 0RECV_B1>0B1", ""}},
       "0B1",
       "expected a backward for every micro-batch"},
      {"missing-task",
       kOneStage,
       {{" 0W0[s0:v0]", ""}},
       "0W0",
       "expected the weight part that belongs to 0I0[s0:v0]"},
      {"missing-task",
       kOneStage,
       {{" 0I0[s0:v0]", ""}, {" 0RECOMPUTE0[s0:v0]", ""}},
       "0I0",
       "expected the input part that belongs to 0W0[s0:v0]"},
      {"missing-task", kOneStage, {{"0F0[s0:v0] ", ""}}, "0F0", "run every micro-batch forward"},
      {"missing-task",
       kOneStage,
       {{"mini-batches 2", "mini-batches 4000000000"}},
       "schedule",
       "has 12 tasks for 1 stages and 4000000000 micro-batches"},
      {"duplicate-task",
       kOneStage,
       {{"0F0[s0:v0]", "0F0[s0:v0] 0F0[s0:v0]"}},
       "0F0[s0:v0]",
       "runs twice"},
      {"duplicate-task",
       kOneStage,
       {{"0I0[s0:v0]", "0I0[s0:v0] 0B0[s0:v0]"}},
       "0B0[s0:v0]",
       "0I0[s0:v0] is a part of it"},
      {"duplicate-task",
       kOneStage,
       {{"0ALLREDUCE0", "0ALLREDUCE0 0ALLREDUCE0"}},
       "0ALLREDUCE0",
       "runs twice"},
      {"backward-before-forward",
       kTwoStages,
       {{"1F0[s0:v0] 1F1[s0:v0] 1B0[s0:v0] 1B1[s0:v0]",
         "1F0[s0:v0] 1B1[s0:v0] 1F1[s0:v0] 1B0[s0:v0]"}},
       "1B1[s0:v0]",
       "does not wait for its forward 1F1[s0:v0]"},
      {"weight-before-input",
       kOneStage,
       {{"0I0[s0:v0] 0W0[s0:v0]", "0W0[s0:v0] 0I0[s0:v0]"}},
       "0W0[s0:v0]",
       "does not wait for the input part 0I0[s0:v0]"},
      {"recompute-order",
       kOneStage,
       {{" 0RECOMPUTE0[s0:v0] 0I0[s0:v0]", " 0I0[s0:v0] 0RECOMPUTE0[s0:v0]"}},
       "0RECOMPUTE0[s0:v0]",
       "is not waited for by 0I0[s0:v0]"},
      {"recompute-order",
       kOneStage,
       {{" 0RECOMPUTE0[s0:v0]", ""}, {"0F0[s0:v0]", "0RECOMPUTE0[s0:v0] 0F0[s0:v0]"}},
       "0RECOMPUTE0[s0:v0]",
       "expected it after its forward"},
      {"recompute-slot",
       kOneStage,
       {{"0RECOMPUTE0[s0:v0]", "0RECOMPUTE0[s1:v0+1]"}},
       "0RECOMPUTE0[s1:v0+1]",
       "reads other weights than 0I0[s0:v0]"},
      {"all-reduce-order",
       kOneStage,
       {{"0ALLREDUCE0 0STEP0[v0]", "0STEP0[v0] 0ALLREDUCE0"}},
       "0STEP0[v0]",
       "does not wait for the all-reduce 0ALLREDUCE0"},
      {"all-reduce-order",
       kOneStage,
       {{" 0ALLREDUCE0", ""}, {"0W0[s0:v0]", "0ALLREDUCE0 0W0[s0:v0]"}},
       "0ALLREDUCE0",
       "does not wait for the backward 0W0[s0:v0]"},
      {"step-missing",
       kTwoStages,
       {{" 0STEP0[v0]", ""}},
       "0STEP0",
       "expected every stage to use up its gradients"},
      {"step-missing",
       kTwoLanes,
       {{" 1STEP0[v0]", ""},
        {"1STEP1[v1]", "1STEP1[v0]"},
        {"1F1[s0:v1] 1B1[s0:v1]", "1F1[s0:v0] 1B1[s0:v0]"}},
       "1STEP0",
       "expected it, as other stages step there"},
      {"step-order",
       kTwoLanes,
       {{"1STEP0[v0]", "1STEP1[v0]"},
        {"1STEP1[v1]", "1STEP0[v1]"},
        {"1B0[s0:v0] 0B0[s0:v0]", "1B0[s0:v0] 0B0[s0:v0]"}},
       "1STEP1[v0]",
       "does not wait for the step 1STEP0[v1]",
       nullptr,
       "step-before-backward"},
      {"step-before-backward",
       kTwoStages,
       {{"0B1[s0:v0] 0STEP0[v0]", "0STEP0[v0] 0B1[s0:v1]"}},
       "0STEP0[v0]",
       "does not wait for the backward 0B1[s0:v1]"},
      {"version-mismatch",
       kTwoStages,
       {{"0B1[s0:v0]", "0B1[s0:v3]"}},
       "0B1[s0:v3]",
       "expects v3 in slot 0, which holds v0, the weights at the start"},
      {"version-mismatch",
       kOneStage,
       {{"0F1[s1:v0+1]", "0F1[s1:v0]"}},
       "0F1[s1:v0]",
       "expects v0 in slot 1, which holds v0+1, written by 0PREDICT_F1[s0:v0>s1+1]"},
      {"version-mismatch",
       kOneStage,
       {{"0STEP1[v1]", "0STEP1[v2]"}},
       "0STEP1[v2]",
       "steps from v2, but slot 0 holds v1"},
      {"read-unwritten-slot",
       kOneStage,
       {{"0F1[s1:v0+1]", "0F1[s2:v0+1]"}},
       "0F1[s2:v0+1]",
       "reads slot 2, which nothing has written"},
      {"read-released-slot",
       kOneStage,
       {{"0B1[s2:v0] 0RELEASE1[s2]", "0RELEASE1[s2] 0B1[s2:v0]"}},
       "0B1[s2:v0]",
       "reads slot 2, which 0RELEASE1[s2] has released"},
      {"copy-from-slot",
       kOneStage,
       {{"0STASH0[s0:v0>s2]", "0STASH0[s1:v0>s2]"}},
       "0STASH0[s1:v0>s2]",
       "expected the master weights, slot 0"},
      {"predict-into-master",
       kOneStage,
       {{"0PREDICT_F1[s0:v0>s1+1] 0F1[s1:v0+1]", "0PREDICT_F1[s0:v0>s0+1] 0F1[s0:v0]"}},
       "0PREDICT_F1[s0:v0>s0+1]",
       "writes slot 0: expected another slot"},
      {"predict-distance-zero",
       kOneStage,
       {{"0PREDICT_F1[s0:v0>s1+1] 0F1[s1:v0+1]", "0PREDICT_F1[s0:v0>s1+0] 0F1[s1:v0]"}},
       "0PREDICT_F1[s0:v0>s1+0]",
       "aims 0 steps ahead"},
      {"release-free-slot",
       kOneStage,
       {{"0RELEASE1[s2]", "0RELEASE1[s2] 0RELEASE1[s2]"}},
       "0RELEASE1[s2]",
       "releases slot 2, which holds nothing"},
      {"release-free-slot",
       kOneStage,
       {{"0RELEASE1[s2]", "0RELEASE1[s0]"}},
       "0RELEASE1[s0]",
       "releases slot 0, the master weights"},
      {"slot-race",
       kTwoLanes,
       {{"0PREDICT_F1>0F1 ", ""}},
       "0PREDICT_F1[s0:v1>s1+1]",
       "and 0F1[s1:v1+1] both touch slot 1 of stage 0"},
      // Communication.
      {"send-to-self",
       kTwoLanes,
       {{"edges: 0B0>0STEP0", "send 0>0: 0SEND_F0\nedges: 0B0>0STEP0"}},
       "0SEND_F0",
       "has both ends on device 0"},
      {"wrong-link",
       kTwoStages,
       {{"devices 2", "devices 3"}, {"send 1>0: 1SEND_B0 1SEND_B1", "send 1>2: 1SEND_B0 1SEND_B1"}},
       "1SEND_B0",
       "stands in lane \"send 1>2\": expected lane \"send 1>0\""},
      {"message-direction",
       kTwoStages,
       {{"send 0>1: 0SEND_F0 0SEND_F1[8B]", "send 0>1: 0SEND_F0 0SEND_F1[8B] 0SEND_B0[>1]"},
        {"receive 0>1: 1RECV_F0 1RECV_F1[8B]", "receive 0>1: 1RECV_F0 1RECV_F1[8B] 1RECV_B0[<0]"}},
       "0SEND_B0[>1]",
       "takes a backward from stage 0 to stage 1"},
      {"duplicate-message",
       kTwoStages,
       {{"0SEND_F1[8B]", "0SEND_F1[8B] 0SEND_F1"},
        {"0F1>0SEND_F1 0SEND_F1>1RECV_F1", "0F1>0SEND_F1[8B] 0SEND_F1[8B]>1RECV_F1"}},
       "0SEND_F1",
       "is there twice"},
      {"send-without-receive",
       kTwoStages,
       {{" 1RECV_F1[8B]", ""}, {" 0SEND_F1>1RECV_F1 1RECV_F1>1F1", ""}},
       "0SEND_F1[8B]",
       "has no matching receive: expected 1RECV_F1"},
      {"receive-without-send",
       kTwoStages,
       {{" 0SEND_F1[8B]", ""}, {"0F1>0SEND_F1 0SEND_F1>1RECV_F1 ", ""}},
       "1RECV_F1[8B]",
       "has no matching send: expected 0SEND_F1"},
      {"bytes-mismatch",
       kTwoStages,
       {{"0SEND_F1[8B]", "0SEND_F1[4096B]"}, {"1RECV_F1[8B]", "1RECV_F1[6144B]"}},
       "0SEND_F1[4096B]",
       "sends 4096 bytes and 1RECV_F1[6144B] expects 6144"},
      {"message-order",
       kTwoStages,
       {{"1RECV_F0 1RECV_F1[8B]", "1RECV_F1[8B] 1RECV_F0"}},
       "1RECV_F1[8B]",
       "is received before 1RECV_F0 and sent after it"},
      {"missing-dependency",
       kTwoStages,
       {{" 1RECV_F1>1F1", ""}},
       "1F1[s0:v0]",
       "does not wait for 1RECV_F1[8B]"},
      {"missing-dependency",
       kTwoStages,
       {{"0F1>0SEND_F1 ", ""}},
       "0SEND_F1[8B]",
       "does not wait for 0F1[s0:v0]"},
      {"missing-dependency",
       kTwoStages,
       {{"0SEND_F1>1RECV_F1 ", ""}},
       "1RECV_F1[8B]",
       "does not wait for 0SEND_F1[8B]"},
      {"missing-dependency",
       kTwoLanes,
       {{"0F0[s0:v0] 1F0[s0:v0] 1B0[s0:v0]", "1F0[s0:v0] 0F0[s0:v0] 1B0[s0:v0]"}},
       "1F0[s0:v0]",
       "gets no input"},
      {"missing-dependency",
       kTwoLanes,
       {{"1B0[s0:v0] 0B0[s0:v0]", "0B0[s0:v0] 1B0[s0:v0]"}},
       "0B0[s0:v0]",
       "gets no gradient"},
      {"missing-gradient",
       kTwoStages,
       {{"1SEND_B0 1SEND_B1\n", "1SEND_B0\n"},
        {"0RECV_B0 0RECV_B1\n", "0RECV_B0\n"},
        {"edges: 1B1>1SEND_B1 1SEND_B1>0RECV_B1 0RECV_B1>0B1\n", ""}},
       "0SEND_F1[8B]",
       "brings no gradient back: expected 1SEND_B1"},
      // Resources.
      {"slots-declared",
       kOneStage,
       {{"slots 3", "slots 2"}},
       "0STASH0[s0:v0>s2]",
       "uses slot 2: expected one of 0 to 1"},
      {"slots-unused",
       kTwoStages,
       {{"stage 1 device 1 slots 1", "stage 1 device 1 slots 2"}},
       "stage 1",
       "declares 2 slots and never touches slot 1"},
  };
  return kBroken;
}

std::string told(const std::vector<Diagnostic>& diagnostics) {
  return diagnostics.empty() ? "nothing" : Error{ErrorKind::Illegal, diagnostics}.to_string();
}

}  // namespace

TEST_CASE("validate: small legal schedules pass") {
  for (const std::string_view text : {kTwoStages, kOneStage, kTwoLanes}) {
    CAPTURE(text);
    CHECK_EQ(told(validate(parsed(text))), "nothing");
    CHECK(check_legal(parsed(text)).ok());
  }
}

TEST_CASE("validate: a schedule without any backward is legal and needs no steps") {
  const std::string forward_only = R"(# xpipe.schedule 1
policy hand
micro-batches 1
mini-batches 2
devices 2
stage 0 device 0 slots 1
stage 1 device 1 slots 1
compute 0: 0F0[s0:v0] 0F1[s0:v0]
compute 1: 1F0[s0:v0] 1F1[s0:v0]
send 0>1: 0SEND_F0 0SEND_F1
receive 0>1: 1RECV_F0 1RECV_F1
edges: 0F0>0SEND_F0 0SEND_F0>1RECV_F0 1RECV_F0>1F0 0F1>0SEND_F1 0SEND_F1>1RECV_F1 1RECV_F1>1F1
)";
  CHECK_EQ(told(validate(parsed(forward_only))), "nothing");
}

TEST_CASE("validate: a schedule that steps must run backward") {
  const std::string steps_alone = R"(# xpipe.schedule 1
policy hand
micro-batches 1
mini-batches 1
devices 1
stage 0 device 0 slots 1
compute 0: 0F0[s0:v0] 0STEP0[v0]
)";
  const std::vector<Diagnostic> found = validate(parsed(steps_alone));
  REQUIRE_EQ(found.size(), 1);
  CHECK_EQ(found[0].code, "missing-task");
  CHECK_EQ(found[0].where, "0B0");
}

TEST_CASE("validate: every broken schedule is told by its code, its place and what was expected") {
  for (const Broken& broken : broken_schedules()) {
    CAPTURE(broken.code);
    CAPTURE(broken.says);
    Schedule schedule = parsed(edited(broken.base, broken.edits));
    if (broken.change != nullptr) {
      broken.change(schedule);
    }
    const std::vector<Diagnostic> found = validate(schedule);
    CAPTURE(told(found));
    const bool hit = std::any_of(found.begin(), found.end(), [&broken](const Diagnostic& d) {
      return d.code == broken.code && d.where == broken.where &&
             d.message.find(broken.says) != std::string::npos;
    });
    CHECK(hit);
    CHECK(std::all_of(found.begin(), found.end(), [&broken](const Diagnostic& d) {
      return d.code == broken.code || d.code == broken.also;
    }));
    CHECK_FALSE(check_legal(schedule).ok());
  }
}

TEST_CASE("validate: every code in the validator's list has a broken example") {
  std::set<std::string_view> with_example;
  for (const Broken& broken : broken_schedules()) {
    with_example.insert(broken.code);
  }
  std::set<std::string_view> listed;
  for (const ValidationRule& rule : validation_rules()) {
    CAPTURE(rule.code);
    CHECK(listed.insert(rule.code).second);
    CHECK(with_example.count(rule.code) == 1);
    CHECK_FALSE(rule.rule.empty());
  }
  for (const std::string_view code : with_example) {
    CAPTURE(code);
    CHECK(listed.count(code) == 1);
  }
}

TEST_CASE("validate: all faults of one level come at once, in the order of tasks") {
  const Schedule schedule = parsed(edited(kTwoStages, {{"0B1[s0:v0]", "0B1[s0:v7]"},
                                                       {"0F0[s0:v0]", "0F0[s0:v5]"},
                                                       {" 1STEP0[v0]", ""},
                                                       {"1F0[s0:v0]", "1F0[s4:v0]"}}));
  const std::vector<Diagnostic> found = validate(schedule);
  std::vector<std::string> lines;
  for (const Diagnostic& d : found) {
    lines.push_back(d.code + " " + d.where);
  }
  CHECK_EQ(lines, std::vector<std::string>{"step-missing 1STEP0", "version-mismatch 0F0[s0:v5]",
                                           "version-mismatch 0B1[s0:v7]",
                                           "read-unwritten-slot 1F0[s4:v0]"});
}

TEST_CASE("validate: a level that finds faults stops the ones after it") {
  // The wrong version is a fault of meaning, the lost receive one of communication.
  const Schedule schedule = parsed(edited(kTwoStages, {{"0B1[s0:v0]", "0B1[s0:v7]"},
                                                       {" 1RECV_F1[8B]", ""},
                                                       {" 0SEND_F1>1RECV_F1 1RECV_F1>1F1", ""}}));
  const std::vector<Diagnostic> found = validate(schedule);
  REQUIRE_EQ(found.size(), 1);
  CHECK_EQ(found[0].code, "version-mismatch");
}

TEST_CASE("validate: faults beyond a hundred of one code are counted") {
  Schedule schedule = parsed(kOneStage);
  const Task step = schedule.tasks.back();
  for (int i = 0; i < 130; ++i) {
    schedule.tasks.push_back(step);
  }
  const std::vector<Diagnostic> found = validate(schedule);
  REQUIRE_EQ(found.size(), kMaxFaultsPerCode + 1);
  CHECK_EQ(found.back().message, "30 more of this code");
  CHECK_EQ(found.back().code, "task-not-in-lane");
}

TEST_CASE("validate: an empty schedule is refused, not passed") {
  CHECK_NE(told(validate(Schedule{})), "nothing");
}

TEST_CASE("validate: stage weights touched from two lanes race unless edges order them") {
  // The step writes slot 0 on the second lane while 0B1 reads it on the first.
  const Schedule schedule = parsed(edited(kTwoLanes, {{" 0B1>0STEP1", ""}}));
  std::vector<std::string> codes;
  for (const Diagnostic& d : validate(schedule)) {
    codes.push_back(d.code);
  }
  CHECK(std::count(codes.begin(), codes.end(), "slot-race") == 1);
  CHECK(std::count(codes.begin(), codes.end(), "step-before-backward") == 1);
}

}  // namespace xpipe::ir
