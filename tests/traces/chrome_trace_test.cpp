// What a viewer gets: field cases H1 to H6 and formats.md 3.
#include "traces/chrome_trace.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ir/text.h"
#include "tests/traces/trace_helpers.h"
#include "traces/arrows.h"
#include "traces/trace_validator.h"
#include "traces/weight_counters.h"

namespace xpipe::tests {
namespace {

using ir::index_of;
using ir::Nanos;
using Json = nlohmann::json;
using traces::CounterSeries;
using traces::TraceInfo;

std::vector<Json> events_of(const Json& trace, const std::string& phase) {
  std::vector<Json> events;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == phase) {
      events.push_back(event);
    }
  }
  return events;
}

/// D = 2, T = 1, N = 1:   0F0  SEND ~ RECV  1F0 1B0  SEND ~ RECV  0B0
const Drawing kPlan = {{"0F0", {0, 100}},        {"0SEND_F0", {100, 120}}, {"1RECV_F0", {130, 130}},
                       {"1F0", {130, 230}},      {"1B0", {230, 430}},      {"1STEP0", {430, 440}},
                       {"1SEND_B0", {430, 450}}, {"0RECV_B0", {460, 460}}, {"0B0", {460, 660}},
                       {"0STEP0", {660, 670}}};

TEST_CASE("chrome trace: every policy's plan and run pass the validator") {
  for (const std::string& policy : policy_names()) {
    for (std::uint32_t stages : {1U, 2U, 4U, 8U}) {
      for (std::uint32_t micro_batches : {1U, 4U}) {
        CAPTURE(policy);
        CAPTURE(stages);
        CAPTURE(micro_batches);
        const ir::Schedule schedule = schedule_for({policy, stages, micro_batches, 5});
        for (const ir::Timeline& timeline :
             {plan_of(schedule), plan_of(schedule, 1234), made_up_run(schedule, stages)}) {
          const std::string text =
              trace_of(schedule, timeline, {}, traces::weight_counters(schedule, timeline));
          CHECK(joined(traces::validate_trace(text)) == "");
        }
      }
    }
  }
}

TEST_CASE("chrome trace: a slice for each task, with its times in us and ns") {
  const ir::Schedule schedule = schedule_for({});
  const Json trace = Json::parse(trace_of(schedule, drawn(schedule, kPlan, false)));
  const std::vector<Json> slices = events_of(trace, "X");
  REQUIRE(slices.size() == schedule.tasks.size());
  for (const Json& slice : slices) {
    const ir::Task& task = schedule.tasks[slice["args"]["task"].get<std::size_t>()];
    const std::string name = slice["name"];
    CHECK(name == to_text(task));
    CHECK(slice["cat"] == std::string(kind_name(task.kind())));
    const auto [start, end] = kPlan.at(name.substr(0, name.find('[')));
    CHECK(slice["args"]["start_ns"] == start);
    CHECK(slice["args"]["end_ns"] == end);
    CHECK(slice["ts"].get<double>() == doctest::Approx(static_cast<double>(start) / 1000));
    CHECK(slice["dur"].get<double>() == doctest::Approx(static_cast<double>(end - start) / 1000));
    CHECK(slice["pid"] == index_of(schedule.lane(task.lane).device) + 1);
    CHECK(slice["args"]["stage"] == index_of(task.stage));
  }
  const Json& meta = trace["metadata"];
  CHECK(meta["format"] == "xpipe.trace");
  CHECK(meta["kind"] == "plan");
  CHECK(meta["makespan_ns"] == 670);
  CHECK(meta["policy"] == "gpipe");
}

TEST_CASE("chrome trace: the weights a pass reads stand in its args") {
  const ir::Schedule schedule = schedule_for({"xpipe", 4, 2, 6});
  const Json trace = Json::parse(trace_of(schedule, plan_of(schedule)));
  std::size_t predicted = 0;
  for (const Json& slice : events_of(trace, "X")) {
    const ir::Task& task = schedule.tasks[slice["args"]["task"].get<std::size_t>()];
    if (const ir::WeightRead* read = ir::weights_read(task)) {
      CHECK(slice["args"]["slot"] == index_of(read->slot));
      CHECK(slice["args"]["version"] == read->version);
      CHECK(slice["args"]["distance"] == read->distance);
      predicted += read->distance > 0 ? 1 : 0;
    }
  }
  CHECK(predicted > 0);
}

TEST_CASE("chrome trace: times are fixed notation with three decimals (H3)") {
  // Three tasks of 0.25 us back to back, long after 2^53 ns would still be exact in a double.
  const ir::Schedule schedule = schedule_for({"gpipe", 1, 1, 1});
  const auto at = [&](Nanos base) {
    return trace_of(schedule, drawn(schedule,
                                    {{"0F0", {base, base + 250}},
                                     {"0B0", {base + 250, base + 500}},
                                     {"0STEP0", {base + 500, base + 750}}},
                                    true));
  };
  const std::string text = at(0);
  CHECK(text.find(R"("ts":0.000,"dur":0.250)") != std::string::npos);
  CHECK(text.find(R"("ts":0.250,"dur":0.250)") != std::string::npos);
  CHECK(text.find(R"("ts":0.500,"dur":0.250)") != std::string::npos);
  const std::string late = at(9'007'199'254'740'993'001);
  CHECK(late.find(R"("ts":9007199254740993.001,"dur":0.250)") != std::string::npos);
  CHECK(joined(traces::validate_trace(late)) == "");
}

TEST_CASE("chrome trace: the base time stands in the metadata, once, in ns (H3)") {
  const ir::Schedule schedule = schedule_for({});
  const std::string text = trace_of(
      schedule, drawn(schedule, kPlan, true),
      TraceInfo{.title = "", .base_time_ns = 1'760'000'000'123'456'789, .facts = {}, .layers = {}});
  const Json trace = Json::parse(text);
  CHECK(trace["metadata"]["base_time_ns"] == 1'760'000'000'123'456'789);
  CHECK(trace["baseTimeNanoseconds"] == 1'760'000'000'123'456'789);
  CHECK(trace["metadata"]["kind"] == "run");
}

TEST_CASE("chrome trace: names with quotes, control characters and bad UTF-8 do no harm (H1)") {
  const std::vector<std::string> names = {"a\"b", "c\\d", std::string("e\x01") + "f",
                                          "\xC3\xA9\xE6\xBC\xA2", "g\nh"};
  TraceInfo info;
  info.title = "t\"\\\n\x02";
  info.layers = {names, {"bad \xFF byte"}};
  info.facts = {{"k\"ey", "v\tal"}, {"\"rank\": 7", "\"rank\": 9"}};
  const ir::Schedule schedule = schedule_for({});
  const std::vector<CounterSeries> counters = {
      {.name = "mem\"ory", .unit = "by\\tes", .device = ir::DeviceId{1}, .base = 5, .points = {}}};
  const std::string text = trace_of(schedule, drawn(schedule, kPlan, false), info, counters);
  CHECK(joined(traces::validate_trace(text)) == "");
  const Json trace = Json::parse(text);
  CHECK(trace["metadata"]["layers"][0] == names);
  CHECK(trace["metadata"]["layers"][1][0] == "bad \xEF\xBF\xBD byte");
  CHECK(trace["metadata"]["title"] == info.title);
  CHECK(trace["metadata"]["facts"]["k\"ey"] == "v\tal");
  CHECK(events_of(trace, "C")[0]["name"] == "mem\"ory");
  CHECK(events_of(trace, "C")[0]["args"]["by\\tes"] == 5);
}

TEST_CASE("chrome trace: 12 devices have 12 pids, named and sorted by number (H5)") {
  const ir::Schedule schedule = schedule_for({"gpipe", 12, 2, 1});
  const Json trace = Json::parse(trace_of(schedule, plan_of(schedule)));
  std::map<int, std::string> names;
  std::map<int, int> order;
  std::map<int, int> thread_pid;
  bool metadata_over = false;
  for (const Json& event : trace["traceEvents"]) {
    metadata_over = metadata_over || event["ph"] != "M";
    if (event["ph"] != "M") {
      CHECK(event["tid"].get<int>() > 0);
      continue;
    }
    CHECK_FALSE(metadata_over);
    CHECK_FALSE(event.contains("ts"));
    if (event["name"] == "process_name") {
      names[event["pid"]] = event["args"]["name"];
    } else if (event["name"] == "process_sort_index") {
      order[event["pid"]] = event["args"]["sort_index"];
    } else if (event["name"] == "thread_name") {
      CHECK(thread_pid.emplace(event["tid"], event["pid"]).second);  // unique over the file
    }
  }
  REQUIRE(names.size() == 12);
  for (int d = 0; d < 12; ++d) {
    CHECK(names[d + 1] == "device " + std::to_string(d));
    CHECK(order[d + 1] == d);
  }
}

TEST_CASE("chrome trace: a schedule without tasks still names its devices (H6)") {
  ir::Schedule schedule;
  schedule.policy = "none";
  schedule.devices = 3;
  const std::string text = trace_of(schedule, {});
  CHECK(joined(traces::validate_trace(text)) == "");
  const Json trace = Json::parse(text);
  CHECK(events_of(trace, "X").empty());
  CHECK(events_of(trace, "M").size() == 12);
}

TEST_CASE("chrome trace: HTA finds the rank and viewers the first bytes") {
  const ir::Schedule schedule = schedule_for({});
  const std::string text = trace_of(schedule, drawn(schedule, kPlan, false));
  CHECK(text.starts_with("{\""));
  const std::size_t rank = text.find("\n    \"rank\": 0");
  REQUIRE(rank != std::string::npos);
  CHECK(rank < text.find("\"traceEvents\""));
}

TEST_CASE("chrome trace: an arrow per message ties send to consumer, at times inside both") {
  const ir::Schedule schedule = schedule_for({});
  const Json trace = Json::parse(trace_of(schedule, drawn(schedule, kPlan, false)));
  // Two messages, and no step's weights are read again in this segment.
  const std::vector<Json> starts = events_of(trace, "s");
  const std::vector<Json> finishes = events_of(trace, "f");
  REQUIRE(starts.size() == 2);
  REQUIRE(finishes.size() == 2);
  CHECK(starts[0]["ts"] == 0.119);  // the last ns of 0SEND_F0
  CHECK(starts[0]["pid"] == 1);
  CHECK(finishes[0]["ts"] == 0.130);  // 1F0
  CHECK(finishes[0]["pid"] == 2);
  CHECK(finishes[0]["bp"] == "e");
  CHECK(starts[0]["id"] == finishes[0]["id"]);
  CHECK(starts[0]["id"] != starts[1]["id"]);
  CHECK(starts[1]["ts"] == 0.449);
  CHECK(finishes[1]["ts"] == 0.460);
}

TEST_CASE("chrome trace: without transfer time the arrow leaves from the producer") {
  const ir::Schedule schedule = schedule_for({});
  const Json trace = Json::parse(trace_of(schedule, plan_of(schedule)));
  const std::vector<Json> starts = events_of(trace, "s");
  REQUIRE(starts.size() == 2);
  CHECK(starts[0]["ts"] == 999.999);  // 0F0 ends at 1 ms
  CHECK(events_of(trace, "f")[0]["ts"] == 1000.000);
}

TEST_CASE("arrows: each pass has one from the task that wrote the weights it reads") {
  const ir::Schedule schedule = schedule_for({"xpipe", 4, 2, 6});
  std::map<std::string, std::string> weights;
  for (const traces::Arrow& arrow : traces::arrows_of(schedule)) {
    if (arrow.kind == traces::ArrowKind::Weights) {
      CHECK(weights.emplace(to_text(schedule.task(arrow.to)), to_text(schedule.task(arrow.from)))
                .second);
    }
  }
  for (const ir::Task& task : schedule.tasks) {
    const ir::WeightRead* read = ir::weights_read(task);
    if (read == nullptr) {
      continue;
    }
    const std::string text = to_text(task);
    CAPTURE(text);
    const std::string stage = std::to_string(index_of(task.stage));
    const std::string slot = std::to_string(index_of(read->slot));
    if (read->slot == ir::kMasterSlot) {
      if (read->version == 0) {
        CHECK_FALSE(weights.contains(text));  // nobody in the segment wrote them
      } else {
        CHECK(weights.at(text).starts_with(stage + "STEP"));
        CHECK(weights.at(text).ends_with("[v" + std::to_string(read->version - 1) + "]"));
      }
    } else {
      const std::string writer = weights.at(text);
      CHECK(writer.find(":v" + std::to_string(read->version) + ">s" + slot) != std::string::npos);
      CHECK(writer.starts_with(stage + (read->distance > 0 ? "PREDICT" : "STASH")));
    }
  }
}

TEST_CASE("chrome trace: a counter starts with its base and ends with a sample at the end") {
  const ir::Schedule schedule = schedule_for({});
  const std::vector<CounterSeries> counters = {{.name = "memory",
                                                .unit = "bytes",
                                                .device = ir::DeviceId{1},
                                                .base = 7,
                                                .points = {{100, 1}, {100, 2}, {200, 3}}}};
  const Json trace = Json::parse(trace_of(schedule, drawn(schedule, kPlan, false), {}, counters));
  std::vector<std::pair<double, int>> samples;
  for (const Json& event : events_of(trace, "C")) {
    CHECK(event["pid"] == 2);
    samples.emplace_back(event["ts"], event["args"]["bytes"]);
  }
  const std::vector<std::pair<double, int>> expected = {{0, 7}, {0.1, 2}, {0.2, 3}, {0.67, 3}};
  CHECK(samples == expected);
}

TEST_CASE("chrome trace: a timeline that does not fit is refused with every task's name") {
  const ir::Schedule schedule = schedule_for({});
  ir::Timeline timeline = drawn(schedule, kPlan, true);
  CHECK_FALSE(traces::chrome_trace(schedule, {}).ok());
  timeline.spans[index_of(task_named(schedule, "0B0"))].start = 50;   // overlaps 0F0
  timeline.spans[index_of(task_named(schedule, "1F0"))].start = 231;  // after its end
  const auto refused = traces::chrome_trace(schedule, timeline);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().kind == ir::ErrorKind::Internal);
  const std::string text = refused.error().to_string();
  CHECK(text.find("1F0[s0:v0]: its span is [231, 230) ns") != std::string::npos);
  CHECK(text.find("0B0[s0:v0]: starts at 50 ns, before 0F0[s0:v0]") != std::string::npos);
}

TEST_CASE("chrome trace: the same arguments give the same bytes") {
  const ir::Schedule schedule = schedule_for({"spectrain", 4, 1, 4});
  const ir::Timeline timeline = made_up_run(schedule, 3);
  CHECK(trace_of(schedule, timeline) == trace_of(schedule, timeline));
}

TEST_CASE("chrome trace: busy time of a compute track is the sum of its slices (H4)") {
  const ir::Schedule schedule = schedule_for({"gpipe", 4, 8, 1});
  const Json trace = Json::parse(trace_of(schedule, plan_of(schedule, 1000)));
  std::map<int, double> busy;  // us by pid
  for (const Json& slice : events_of(trace, "X")) {
    if (slice["cat"] == "forward" || slice["cat"] == "backward") {
      busy[slice["pid"]] += slice["dur"].get<double>();
    }
  }
  for (int pid = 1; pid <= 4; ++pid) {
    CHECK(busy[pid] == 8 * 3000);
  }
}

}  // namespace
}  // namespace xpipe::tests
