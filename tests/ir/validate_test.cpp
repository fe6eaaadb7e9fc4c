#include "ir/validate.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "ir/text.h"
#include "tests/ir/broken_schedules.h"
#include "tests/ir/schedules.h"

namespace xpipe::ir {

namespace {

using tests::Broken;
using tests::broken_schedules;
using tests::edited;
using tests::kExchanges;
using tests::kOneStage;
using tests::kReplicas;
using tests::kTwoLanes;
using tests::kTwoStages;
using tests::parsed;

std::string told(const std::vector<Diagnostic>& diagnostics) {
  return diagnostics.empty() ? "nothing" : Error{ErrorKind::Illegal, diagnostics}.to_string();
}

}  // namespace

TEST_CASE("validate: small legal schedules pass") {
  for (const std::string_view text : {kTwoStages, kOneStage, kTwoLanes, kReplicas, kExchanges}) {
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
