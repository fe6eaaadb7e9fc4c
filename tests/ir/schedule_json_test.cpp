#include "ir/schedule_json.h"

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ir/validate.h"
#include "tests/ir/refusals.h"
#include "tests/ir/schedules.h"

namespace xpipe::ir {

namespace {

using tests::edited;
using tests::parsed;

constexpr std::string_view kSmall = R"({"format": "xpipe.schedule", "version": 1,
 "policy": "hand", "options": {"predict": "both"},
 "micro_batches": 1, "mini_batches": 1, "devices": 1,
 "stages": [{"device": 0, "slots": 1}],
 "tasks": ["0F0[s0:v0]", "0B0[s0:v0]", "0STEP0[v0]"],
 "lanes": [{"kind": "compute", "device": 0, "tasks": [0, 1, 2]}],
 "edges": []}
)";

}  // namespace

TEST_CASE("schedule json: what is read back is the same schedule, and the bytes are the same") {
  for (const std::string_view text : {tests::kTwoStages, tests::kOneStage, tests::kTwoLanes,
                                      tests::kReplicas, tests::kExchanges}) {
    const Schedule schedule = parsed(text);
    const std::string json = schedule_to_json(schedule);
    const Result<Schedule> back = schedule_from_json(json, "f.json");
    REQUIRE(back.ok());
    CHECK(back.value() == schedule);
    CHECK_EQ(schedule_to_json(back.value()), json);
    CHECK(nlohmann::json::accept(json));
  }
}

TEST_CASE("schedule json: names with quotes, control characters and bad UTF-8 stay readable") {
  Schedule schedule = parsed(tests::kOneStage);
  schedule.policy = "a\"b\\c\n\x01 \xC3\xA9";
  schedule.options = {{"k\"", "v\t"}};
  Result<Schedule> back = schedule_from_json(schedule_to_json(schedule), "f");
  REQUIRE(back.ok());
  CHECK(back.value() == schedule);
  schedule.policy = "\xFF";
  back = schedule_from_json(schedule_to_json(schedule), "f");
  REQUIRE(back.ok());
  CHECK_EQ(back.value().policy, "\xEF\xBF\xBD");
}

TEST_CASE("schedule json: a hand-written file is read and is legal") {
  const Result<Schedule> schedule = schedule_from_json(kSmall, "f.json");
  REQUIRE(schedule.ok());
  CHECK(validate(schedule.value()).empty());
  CHECK_EQ(schedule.value().options[0].second, "both");
}

TEST_CASE("schedule json: what does not belong is refused with its path") {
  tests::check_refusals(
      kSmall, schedule_from_json,
      {
          {"\"version\": 1", "\"version\": 2", "/version", "expected version 1, found 2"},
          {"xpipe.schedule", "xpipe.profile", "/format", "expected \"xpipe.schedule\""},
          {"\"devices\": 1", "\"devices\": -1", "/devices", "found -1"},
          {"\"devices\": 1", "\"devices\": 1.5", "/devices", "found 1.5"},
          {"\"devices\": 1", "\"devices\": true", "/devices", "found true"},
          {"\"devices\": 1", "\"devices\": \"1\"", "/devices", "found the string \"1\""},
          {"\"devices\": 1", "\"devices\": 99999999999999999999", "/devices",
           "found 99999999999999999999"},
          {"\"devices\": 1,", "\"devices\": 1, \"device\": 2,", "/device",
           "unknown key: expected one of format, version"},
          {"\"devices\": 1,", "", "/devices", "is missing"},
          {"\"devices\": 1,", "\"devices\": 1, \"devices\": 1,", "/devices", "duplicate key"},
          {"\"both\"", "3", "/options/predict", "expected a string, found 3"},
          {"\"slots\": 1", "\"slots\": 70000", "/stages/0/slots", "from 0 to 65535"},
          {"0B0[s0:v0]", "0B0", "/tasks/1", "does not say which weights it reads"},
          {"\"0STEP0[v0]\"", "7", "/tasks/2", "expected a task's text form, found 7"},
          {"[0, 1, 2]", "[0, 1, 3]", "/lanes/0/tasks/2", "below 3, found 3"},
          {"\"compute\"", "\"comptue\"", "/lanes/0/kind", "found \"comptue\""},
          {"\"edges\": []", "\"edges\": [[0]]", "/edges/0", "found an array of 1"},
          {"\"edges\": []", "\"edges\": [[0, -1]]", "/edges/0/1", "found -1"},
      });
}

TEST_CASE("schedule json: a task that no lane lists is read, for the validator to tell") {
  const Result<Schedule> schedule =
      schedule_from_json(edited(kSmall, {{"[0, 1, 2]", "[0, 1]"}}), "f.json");
  REQUIRE(schedule.ok());
  const std::vector<Diagnostic> found = validate(schedule.value());
  CHECK_FALSE(found.empty());
  CHECK_EQ(found.back().code, "task-not-in-lane");
}

}  // namespace xpipe::ir
