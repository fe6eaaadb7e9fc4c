// compare, against sums done by hand, a per-nanosecond oracle, and what must always add up.
#include "traces/compare.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck.h>

#include "ir/text.h"
#include "tests/traces/trace_helpers.h"
#include "traces/compare_text.h"

namespace xpipe::tests {
namespace {

using ir::index_of;
using ir::Nanos;
using Json = nlohmann::json;
using traces::Comparison;
using traces::DeviceTime;
using traces::TimelineFile;

TimelineFile file_of(const ir::Schedule& schedule, const ir::Timeline& timeline) {
  return {.info = {}, .schedule = schedule, .timeline = timeline};
}

Nanos total(const DeviceTime& time) {
  return time.compute + time.transfer + time.wait + time.engine;
}

/// D = 2, T = 1, N = 1; times in ns:
///   device 0  0F0 [0 100)  .  .  .  .  .  .  .  .  .  .  .  .  .  .  0B0 [460 660) 0STEP0 [660
///   670) 0 > 1         0SEND_F0 [100 120) ~10 device 1                 1F0 [130 230) 1B0 [230 430)
///   1STEP0 [430 440) 1 > 0                                                1SEND_B0 [430 450) ~10
const Drawing kPlan = {{"0F0", {0, 100}},        {"0SEND_F0", {100, 120}}, {"1RECV_F0", {130, 130}},
                       {"1F0", {130, 230}},      {"1B0", {230, 430}},      {"1STEP0", {430, 440}},
                       {"1SEND_B0", {430, 450}}, {"0RECV_B0", {460, 460}}, {"0B0", {460, 660}},
                       {"0STEP0", {660, 670}}};
const Drawing kRun = {{"0F0", {5, 115}},        {"0SEND_F0", {115, 150}}, {"1RECV_F0", {155, 160}},
                      {"1F0", {170, 290}},      {"1B0", {290, 500}},      {"1STEP0", {500, 512}},
                      {"1SEND_B0", {500, 520}}, {"0RECV_B0", {530, 535}}, {"0B0", {535, 735}},
                      {"0STEP0", {740, 750}}};

Comparison hand_comparison() {
  const ir::Schedule schedule = schedule_for({});
  auto comparison = traces::compare(file_of(schedule, drawn(schedule, kPlan, false)),
                                    file_of(schedule, drawn(schedule, kRun, true)));
  REQUIRE(comparison.ok());
  return std::move(comparison).value();
}

TEST_CASE("compare: the makespan of each device is split as drawn") {
  const ir::Schedule schedule = schedule_for({});
  // Device 0 waits from 100 for 1B0's end at 430, then 30 for its message. Device 1 waits for 0F0
  // until 100, then 30 for its message; after its last task it waits from 440 to 670.
  const std::vector<DeviceTime> plan = {{310, 30, 330, 0}, {310, 30, 330, 0}};
  CHECK(traces::device_times(schedule, drawn(schedule, kPlan, false)) == plan);
  // Engine on device 0: 5 before 0F0 and 5 before 0STEP0; on device 1: 10 before 1F0.
  const std::vector<DeviceTime> run = {{320, 35, 385, 10}, {342, 45, 353, 10}};
  CHECK(traces::device_times(schedule, drawn(schedule, kRun, true)) == run);
}

TEST_CASE("compare: hand-computed ratios, errors and losses") {
  const Comparison c = hand_comparison();
  CHECK(c.tasks == 10);
  CHECK(*c.makespan_ratio == doctest::Approx(750.0 / 670));
  CHECK_FALSE(c.plan_measured);
  CHECK(c.run_measured);
  // Errors: 0 three times (1SEND_B0, 0B0, 0STEP0), 10/210, 10/110, 20/120, 2/12, 15/35, 1, 1.
  CHECK(*c.median_error == doctest::Approx((10.0 / 110 + 1.0 / 6) / 2));
  CHECK(*c.worst_error == 1.0);
  // Without the two that the plan holds for free.
  CHECK(*c.median_priced_error == doctest::Approx((10.0 / 210 + 10.0 / 110) / 2));
  const std::vector<DeviceTime> lost = {{10, 5, 55, 10}, {32, 15, 23, 10}};
  CHECK(c.lost == lost);

  struct Row {
    ir::TaskKind kind;
    std::uint64_t tasks;
    Nanos planned;
    Nanos measured;
  };

  const std::vector<Row> kinds = {{ir::TaskKind::Forward, 2, 200, 230},
                                  {ir::TaskKind::Backward, 2, 400, 410},
                                  {ir::TaskKind::Step, 2, 20, 22},
                                  {ir::TaskKind::Send, 2, 40, 55},
                                  {ir::TaskKind::Receive, 2, 0, 10}};
  REQUIRE(c.by_kind.size() == kinds.size());
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    CHECK(c.by_kind[i].kind == kinds[i].kind);
    CHECK(c.by_kind[i].times ==
          traces::PlannedMeasured{kinds[i].tasks, kinds[i].planned, kinds[i].measured});
  }
  CHECK_FALSE(c.by_kind[4].times.ratio().has_value());
  REQUIRE(c.by_stage.size() == 2);
  // Stage 1: receive 0 -> 5, forward 100 -> 120, backward 200 -> 210, step 10 -> 12, send 20 -> 20.
  CHECK(c.by_stage[1].times == traces::PlannedMeasured{5, 330, 367});
  CHECK(c.by_stage[1].by_kind[0].times == traces::PlannedMeasured{1, 100, 120});
  // Of the two with error 1 both took 5 ns; the smaller id comes first.
  REQUIRE(c.worst_tasks.size() == 10);
  CHECK(c.worst_tasks[0].error == 1.0);
  CHECK(c.worst_tasks[0].task < c.worst_tasks[1].task);
  CHECK(c.worst_tasks[2].text == "0SEND_F0");
}

TEST_CASE("compare: a plan compared with itself loses nothing") {
  for (const std::string& policy : policy_names()) {
    const ir::Schedule schedule = schedule_for({policy, 4, 4, 6});
    const TimelineFile plan = file_of(schedule, plan_of(schedule, 500));
    const auto c = traces::compare(plan, plan);
    REQUIRE(c.ok());
    CHECK(*c.value().makespan_ratio == 1.0);
    CHECK(*c.value().median_error == 0.0);
    CHECK(*c.value().worst_error == 0.0);
    CHECK(c.value().lost == std::vector<DeviceTime>(4));
    for (const traces::StageComparison& stage : c.value().by_stage) {
      CHECK(*stage.times.ratio() == 1.0);
    }
  }
}

/// Another way to the same split: asks of every single nanosecond what the device was doing.
DeviceTime split_by_the_nanosecond(const ir::Schedule& schedule,
                                   const ir::Timeline& timeline,
                                   const ir::Lane& lane) {
  const auto inputs_of = [&](ir::TaskId task) {
    std::vector<ir::TaskId> inputs;
    for (const ir::Edge& edge : schedule.edges) {
      if (edge.to == task) {
        inputs.push_back(edge.from);
      }
    }
    return inputs;
  };
  const auto end_of = [&](ir::TaskId task) { return timeline.spans[index_of(task)].end; };
  DeviceTime time;
  std::size_t next = 0;  // the first task of the lane that has not ended
  for (Nanos now = 0; now < ir::makespan(timeline); ++now) {
    while (next < lane.order.size() && end_of(lane.order[next]) <= now) {
      ++next;
    }
    if (next == lane.order.size()) {
      ++time.wait;
      continue;
    }
    const ir::TaskId task = lane.order[next];
    if (timeline.spans[index_of(task)].start <= now) {
      ++time.compute;
      continue;
    }
    // A message is there when it has been received, and made when its producer has ended.
    Nanos arrived = 0;
    Nanos made = 0;
    for (ir::TaskId input : inputs_of(task)) {
      if (end_of(input) > arrived) {
        arrived = end_of(input);
        made = arrived;
        if (schedule.task(input).kind() == ir::TaskKind::Receive) {
          made = end_of(inputs_of(inputs_of(input).at(0)).at(0));
        }
      }
    }
    ++(now >= arrived ? time.engine : now >= made ? time.transfer : time.wait);
  }
  return time;
}

TEST_CASE("compare: the split equals the per-nanosecond oracle on made-up runs") {
  for (const std::string& policy : policy_names()) {
    for (std::uint32_t seed = 0; seed < 5; ++seed) {
      CAPTURE(policy);
      CAPTURE(seed);
      const ir::Schedule schedule = schedule_for({policy, 3, 2, 3});
      const ir::Timeline run = made_up_run(schedule, seed);
      const std::vector<DeviceTime> times = traces::device_times(schedule, run);
      for (const ir::Lane& lane : schedule.lanes) {
        if (lane.kind == ir::LaneKind::Compute) {
          CHECK(times[index_of(lane.device)] == split_by_the_nanosecond(schedule, run, lane));
        }
      }
    }
  }
}

TEST_CASE("compare: what was lost adds up to the difference of the makespans on every device") {
  const std::vector<std::string> names = policy_names();
  CHECK(rc::check([&names] {
    const TraceCase sizes{*rc::gen::elementOf(names), *rc::gen::inRange(1U, 7U),
                          *rc::gen::inRange(1U, 5U), *rc::gen::inRange(1U, 6U)};
    const ir::Schedule schedule = schedule_for(sizes);
    const ir::Timeline plan = made_up_run(schedule, *rc::gen::arbitrary<std::uint32_t>());
    const ir::Timeline run = made_up_run(schedule, *rc::gen::arbitrary<std::uint32_t>());
    const auto comparison = traces::compare(file_of(schedule, plan), file_of(schedule, run));
    RC_ASSERT(comparison.ok());
    RC_ASSERT(comparison.value().lost.size() == schedule.devices);
    for (const DeviceTime& lost : comparison.value().lost) {
      RC_ASSERT(total(lost) == ir::makespan(run) - ir::makespan(plan));
    }
    for (const DeviceTime& time : traces::device_times(schedule, run)) {
      RC_ASSERT(time.compute >= 0);
      RC_ASSERT(time.transfer >= 0);
      RC_ASSERT(time.wait >= 0);
      RC_ASSERT(time.engine >= 0);
    }
  }));
}

TEST_CASE("compare: a simulated plan has no engine time") {
  for (const std::string& policy : policy_names()) {
    const ir::Schedule schedule = schedule_for({policy, 4, 2, 6});
    for (const DeviceTime& time : traces::device_times(schedule, plan_of(schedule, 700'000))) {
      CHECK(time.engine == 0);
      CHECK(time.transfer > 0);
    }
  }
}

TEST_CASE("compare: timelines of different schedules are refused, the first tasks named") {
  const auto refused = [](const ir::Schedule& a, const ir::Schedule& b) {
    const auto result = traces::compare(file_of(a, plan_of(a)), file_of(b, plan_of(b)));
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().kind == ir::ErrorKind::BadInput);
    return result.error().to_string();
  };
  const ir::Schedule gpipe = schedule_for({"gpipe", 2, 2, 2});
  SUBCASE("other sizes") {
    const std::string text = refused(gpipe, schedule_for({"gpipe", 2, 2, 3}));
    CHECK(text.find("tasks on 2 devices") != std::string::npos);
  }
  SUBCASE("other weights") {
    ir::Schedule other = gpipe;
    const ir::TaskId task = task_named(gpipe, "1F1");
    std::get<ir::Forward>(other.tasks[index_of(task)].payload).weights.version = 9;
    const std::string text = refused(gpipe, other);
    CHECK(text.find("task " + std::to_string(index_of(task)) +
                    ": is 1F1[s0:v0] in the plan and 1F1[s0:v9] in the run") != std::string::npos);
  }
  SUBCASE("other order") {
    ir::Schedule other = gpipe;
    auto& order = other.lanes[0].order;
    std::swap(order[0], order[1]);
    const auto result =
        traces::compare(file_of(gpipe, plan_of(gpipe)), file_of(other, plan_of(gpipe)));
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().to_string().find("comes next in the plan") != std::string::npos);
  }
  SUBCASE("other edges") {
    ir::Schedule other = gpipe;
    other.edges.pop_back();
    const auto result =
        traces::compare(file_of(gpipe, plan_of(gpipe)), file_of(other, plan_of(gpipe)));
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().to_string().find("waits for") != std::string::npos);
  }
}

TEST_CASE("compare: timelines in which nothing takes time have no ratio and no error") {
  const ir::Schedule schedule = schedule_for({});
  ir::Timeline timeline{.measured = false, .spans = {}};
  for (std::size_t i = 0; i < schedule.tasks.size(); ++i) {
    timeline.spans.push_back({ir::TaskId{static_cast<std::uint32_t>(i)}, 0, 0});
  }
  const auto c = traces::compare(file_of(schedule, timeline), file_of(schedule, timeline));
  REQUIRE(c.ok());
  CHECK_FALSE(c.value().makespan_ratio.has_value());
  CHECK_FALSE(c.value().median_error.has_value());
  const Json json = Json::parse(traces::to_json(c.value()));
  CHECK_FALSE(json.contains("makespan_ratio"));
  CHECK_FALSE(json.contains("worst_error"));
  CHECK(traces::to_table(c.value()).find("ratio -") != std::string::npos);
}

TEST_CASE("compare: the JSON holds what design.md 10 names") {
  const Json json = Json::parse(traces::to_json(hand_comparison()));
  CHECK(json["format"] == "xpipe.compare");
  CHECK(json["tasks"] == 10);
  CHECK(json["plan"]["kind"] == "plan");
  CHECK(json["run"]["makespan_ns"] == 750);
  CHECK(json["makespan_ratio"].get<double>() == doctest::Approx(750.0 / 670));
  CHECK(json["by_kind"][0] == Json({{"kind", "forward"},
                                    {"tasks", 2},
                                    {"planned_ns", 200},
                                    {"measured_ns", 230},
                                    {"ratio", 230.0 / 200}}));
  CHECK_FALSE(json["by_kind"][4].contains("ratio"));
  CHECK(json["by_stage"][1]["stage"] == 1);
  CHECK(json["by_stage"][1]["by_kind"][1]["measured_ns"] == 210);
  CHECK(json["lost"].size() == 8);
  CHECK(json["lost"][6] == Json({{"device", 1}, {"kind", "wait"}, {"ns", 23}}));
}

TEST_CASE("compare: the table for people") {
  const std::string table = traces::to_table(hand_comparison());
  CHECK(table.find("gpipe: 10 tasks; plan 0.001 ms, run 0.001 ms, ratio 1.119\n") !=
        std::string::npos);
  CHECK(table.find("worst 100.0 %") != std::string::npos);
  CHECK(table.find("time lost on device") != std::string::npos);
  for (const char* row : {"\nforward ", "\n1   backward ", "\n0SEND_F0 "}) {
    CAPTURE(row);
    CHECK(table.find(row) != std::string::npos);
  }
}

}  // namespace
}  // namespace xpipe::tests
