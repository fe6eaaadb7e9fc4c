// Our traces are the timeline files: what was written is read back, and nothing else is accepted.
#include "traces/timeline_file.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

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

struct Broken {
  std::string where;
  std::string from;
  std::string to;
  std::string says;
};

TEST_CASE(
    "timeline file: a trace that contradicts itself or says too much is refused, with the place") {
  // D = 1, T = 1, N = 1: events 0-3 are metadata, 4 is 0F0, 5 is 0B0, 6 is 0STEP0.
  const ir::Schedule schedule = schedule_for({"gpipe", 1, 1, 1});
  const std::string good = trace_of(
      schedule,
      drawn(schedule, {{"0F0", {0, 100}}, {"0B0", {100, 300}}, {"0STEP0", {300, 310}}}, true));
  REQUIRE(read_timeline(good).ok());
  const std::vector<Broken> cases = {
      {"/traceEvents/4/name", "0F0[s0:v0]", "0Q0[s0:v0]", "not the text of a task"},
      {"/traceEvents/4/cat", "\"cat\":\"forward\"", "\"cat\":\"backward\"", "\"forward\""},
      {"/traceEvents/4/args/micro_batch", "\"micro_batch\":0", "\"micro_batch\":1", "found 1"},
      {"/traceEvents/4/args/stage", "\"stage\":0,", "", "missing"},
      {"/traceEvents/4/args/extra", "\"stage\":0,", "\"stage\":0,\"extra\":1,", "unknown key"},
      {"/traceEvents/4/extra", "\"ts\":0.000", "\"extra\":1,\"ts\":0.000", "unknown key"},
      {"/traceEvents/4/ts", "\"ts\":0.000", "\"ts\":0.001", "0 ns"},
      {"/traceEvents/4/dur", "\"dur\":0.100", "\"dur\":0.1001", "100 ns"},
      {"/traceEvents/4/args/end_ns", "\"end_ns\":100", "\"end_ns\":-1", "found -1"},
      {"/traceEvents/4/args/end_ns", "\"end_ns\":100", "\"end_ns\":100.0", "a whole number"},
      {"/traceEvents/5/args/task", "\"task\":1", "\"task\":0", "once"},
      {"/traceEvents/5/args/task", "\"task\":1", "\"task\":3", "once"},
      {"/traceEvents/5/args/after", "\"args\":{\"task\":1", "\"args\":{\"after\":[9],\"task\":1",
       "other tasks"},
      {"/traceEvents/5/args/after/0", "\"args\":{\"task\":1", "\"args\":{\"after\":[-9],\"task\":1",
       "found -9"},
      {"/traceEvents/4/tid", "\"ph\":\"X\",\"pid\":1,\"tid\":1", "\"ph\":\"X\",\"pid\":1,\"tid\":2",
       "no lane"},
      {"/traceEvents/4/ph", "\"ph\":\"X\"", "\"ph\":\"B\"", "\"B\""},
      {"/traceEvents/5/args/start_ns",
       "\"ts\":0.100,\"dur\":0.200,\"name\":\"0B0[s0:v0]\",\"cat\":\"backward\",\"args\":{\"task\":"
       "1,\"start_ns\":100",
       "\"ts\":0.099,\"dur\":0.201,\"name\":\"0B0[s0:v0]\",\"cat\":\"backward\",\"args\":{\"task\":"
       "1,\"start_ns\":99",
       "before it on this lane"},
      {"/metadata/tasks", "\"tasks\": 3", "\"tasks\": 4", "cut"},
      {"/metadata/makespan_ns", "\"makespan_ns\": 310", "\"makespan_ns\": 311", "310"},
      {"/metadata/kind", "\"kind\": \"run\"", "\"kind\": \"ran\"", "\"plan\" or \"run\""},
      {"/metadata/version", "\"version\": 1", "\"version\": 2", "expected 1"},
      {"/metadata/format", "\"xpipe.trace\"", "\"other.trace\"", "xpipe.trace"},
      {"/metadata/stages/0/slots", "\"slots\": 1", "\"slots\": 0", "found 0"},
      {"/metadata/lanes/0/peer", "\"peer\": 0", "\"peer\": 4", "found 4"},
      {"/metadata/extra", "\"policy\"", "\"extra\": 1, \"policy\"", "unknown key"},
      {"/extra", "\"traceName\"", "\"extra\": 1, \"traceName\"", "unknown key"},
      {"/metadata/policy", "\"policy\": \"gpipe\",", "", "missing"},
      {"/metadata/layers/0", "\"layers\": []", "\"layers\": [1]", "names per stage"},
      {"/traceEvents/4/args/task", "\"args\":{\"task\":0", "\"args\":{\"task\":0,\"task\":0",
       "duplicate key"},
      {"line 3", "\"rank\"", "rank", "not JSON"},
  };
  for (const Broken& broken : cases) {
    CAPTURE(broken.from);
    CAPTURE(broken.to);
    const auto read = read_timeline(edited(good, broken.from, broken.to), "run.json");
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().kind == ir::ErrorKind::BadInput);
    INFO("found: " << read.error().to_string());
    bool found = false;
    for (const ir::Diagnostic& fault : read.error().diagnostics) {
      found = found || (fault.where.starts_with(std::string("run.json: ") + broken.where) &&
                        fault.message.find(broken.says) != std::string::npos);
    }
    CHECK(found);
  }
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
