// Our traces are the timeline files: what was written is read back, and nothing else is accepted.
#include "traces/timeline_file.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/ir/refusals.h"
#include "tests/traces/trace_helpers.h"
#include "traces/chrome_trace.h"
#include "traces/trace_validator.h"
#include "traces/weight_counters.h"

namespace xpipe::tests {
namespace {

using traces::read_timeline;
using traces::TimelineFile;

TEST_CASE("timeline file: schedule, timeline and info come back as they were written") {
  traces::TraceInfo info;
  info.title = "a \"title\"\n";
  info.base_time_ns = 1'760'000'000'123'456'789;
  info.facts = {{"seed", "7"}, {"a", "last"}};
  info.layers = {{"conv1", "conv2"}, {}};
  for (const std::string& policy : policy_names()) {
    for (std::uint32_t stages : {1U, 2U, 5U}) {
      CAPTURE(policy);
      CAPTURE(stages);
      const ir::Schedule schedule = schedule_for({policy, stages, 3, 4});
      for (const ir::Timeline& timeline :
           {plan_of(schedule), plan_of(schedule, 777), made_up_run(schedule, 11)}) {
        const std::string text =
            trace_of(schedule, timeline, info, traces::weight_counters(schedule, timeline));
        CHECK(traces::is_timeline_file(text));
        const auto read = read_timeline(text);
        REQUIRE_MESSAGE(read.ok(), read.error().to_string());
        CHECK(read.value() == TimelineFile{info, schedule, timeline});
      }
    }
  }
}

TEST_CASE(
    "timeline file: a trace that contradicts itself or says too much is refused, with the place") {
  // D = 1, T = 1, N = 1: events 0-3 are metadata, 4 is 0F0, 5 is 0B0, 6 is 0STEP0.
  const ir::Schedule schedule = schedule_for({"gpipe", 1, 1, 1});
  const std::string good = trace_of(
      schedule,
      drawn(schedule, {{"0F0", {0, 100}}, {"0B0", {100, 300}}, {"0STEP0", {300, 310}}}, true));
  REQUIRE(read_timeline(good).ok());
  ir::tests::check_refusals(
      good, read_timeline,
      {
          {"0F0[s0:v0]", "0Q0[s0:v0]", "/traceEvents/4/name", "not the text of a task"},
          {"\"cat\":\"forward\"", "\"cat\":\"backward\"", "/traceEvents/4/cat", "\"forward\""},
          {"\"micro_batch\":0", "\"micro_batch\":1", "/traceEvents/4/args/micro_batch", "found 1"},
          {"\"stage\":0,", "", "/traceEvents/4/args/stage", "missing"},
          {"\"stage\":0,", "\"stage\":0,\"extra\":1,", "/traceEvents/4/args/extra", "unknown key"},
          {"\"ts\":0.000", "\"extra\":1,\"ts\":0.000", "/traceEvents/4/extra", "unknown key"},
          {"\"ts\":0.000", "\"ts\":0.001", "/traceEvents/4/ts", "0 ns"},
          {"\"dur\":0.100", "\"dur\":0.1001", "/traceEvents/4/dur", "100 ns"},
          {"\"end_ns\":100", "\"end_ns\":-1", "/traceEvents/4/args/end_ns", "found -1"},
          {"\"end_ns\":100", "\"end_ns\":100.0", "/traceEvents/4/args/end_ns", "a whole number"},
          {"\"task\":1", "\"task\":0", "/traceEvents/5/args/task", "once"},
          {"\"task\":1", "\"task\":3", "/traceEvents/5/args/task", "once"},
          {"\"args\":{\"task\":1", "\"args\":{\"after\":[9],\"task\":1",
           "/traceEvents/5/args/after", "other tasks"},
          {"\"args\":{\"task\":1", "\"args\":{\"after\":[-9],\"task\":1",
           "/traceEvents/5/args/after/0", "found -9"},
          {"\"ph\":\"X\",\"pid\":1,\"tid\":1", "\"ph\":\"X\",\"pid\":1,\"tid\":2",
           "/traceEvents/4/tid", "no lane"},
          {"\"ph\":\"X\"", "\"ph\":\"B\"", "/traceEvents/4/ph", "\"B\""},
          {"\"ts\":0.100,\"dur\":0.200,\"name\":\"0B0[s0:v0]\",\"cat\":\"backward\",\"args\":{"
           "\"task\":"
           "1,\"start_ns\":100",
           "\"ts\":0.099,\"dur\":0.201,\"name\":\"0B0[s0:v0]\",\"cat\":\"backward\",\"args\":{"
           "\"task\":"
           "1,\"start_ns\":99",
           "/traceEvents/5/args/start_ns", "before it on this lane"},
          {"\"tasks\": 3", "\"tasks\": 4", "/metadata/tasks", "cut"},
          {"\"makespan_ns\": 310", "\"makespan_ns\": 311", "/metadata/makespan_ns", "310"},
          {"\"kind\": \"run\"", "\"kind\": \"ran\"", "/metadata/kind", "\"plan\" or \"run\""},
          {"\"version\": 1", "\"version\": 2", "/metadata/version", "expected 1"},
          {"\"xpipe.trace\"", "\"other.trace\"", "/metadata/format", "xpipe.trace"},
          {"\"slots\": 1", "\"slots\": 0", "/metadata/stages/0/slots", "found 0"},
          {"\"peer\": 0", "\"peer\": 4", "/metadata/lanes/0/peer", "found 4"},
          {"\"policy\"", "\"extra\": 1, \"policy\"", "/metadata/extra", "unknown key"},
          {"\"traceName\"", "\"extra\": 1, \"traceName\"", "/extra", "unknown key"},
          {"\"policy\": \"gpipe\",", "", "/metadata/policy", "missing"},
          {"\"layers\": []", "\"layers\": [1]", "/metadata/layers/0", "names per stage"},
          {"\"args\":{\"task\":0", "\"args\":{\"task\":0,\"task\":0", "/traceEvents/4/args/task",
           "duplicate key"},
          {"\"rank\"", "rank", "line 3", "not JSON"},
      });
}

TEST_CASE("timeline file: all faults at once") {
  const ir::Schedule schedule = schedule_for({"gpipe", 2, 2, 1});
  std::string text = trace_of(schedule, plan_of(schedule));
  text = edited(text, "\"cat\":\"forward\"", "\"cat\":\"forwards\"");
  text = edited(text, "\"slots\": 1", "\"slots\": \"1\"");
  text = edited(text, "\"kind\": \"plan\"", "\"kind\": 1");
  const auto read = read_timeline(text);
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().diagnostics.size() == 3);
}

TEST_CASE("timeline file: other traces and other JSON are told apart and refused") {
  for (const char* text : {"", "5", "[]", "{}", R"({"traceEvents": []})",
                           R"([{"ph":"X","pid":1,"tid":1,"ts":0,"dur":1}])"}) {
    CAPTURE(text);
    CHECK_FALSE(traces::is_timeline_file(text));
    CHECK_FALSE(read_timeline(text).ok());
  }
}

TEST_SUITE("slow") {
  TEST_CASE("timeline file: 200000 compute tasks are written, validated and read back (H6)") {
    const ir::Schedule schedule = schedule_for({"gpipe", 8, 12'500, 1});
    const ir::Timeline timeline = plan_of(schedule, 1000);
    const std::string text = trace_of(schedule, timeline);
    std::size_t compute = 0;
    for (const char* kind : {"\"cat\":\"forward\"", "\"cat\":\"backward\""}) {
      for (std::size_t at = text.find(kind); at != std::string::npos;
           at = text.find(kind, at + 1)) {
        ++compute;
      }
    }
    CHECK(compute == 200'000);
    CHECK(joined(traces::validate_trace(text)) == "");
    const auto read = read_timeline(text);
    REQUIRE(read.ok());
    CHECK(read.value().timeline == timeline);
    CHECK(read.value().schedule == schedule);
  }
}

}  // namespace
}  // namespace xpipe::tests
