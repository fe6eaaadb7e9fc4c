#include "scheduler/cost_model.h"

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "ir/text.h"
#include "scheduler/link_model.h"
#include "scheduler/rounding.h"

namespace xpipe::scheduler {
namespace {

using ir::Nanos;

/// Two devices; compute lanes 0 and 1, a send and a receive lane 0>1. Tasks by their text form.
ir::Schedule schedule_of(const std::vector<std::pair<const char*, std::uint32_t>>& tasks) {
  ir::Schedule schedule;
  schedule.devices = 2;
  schedule.stages = {{ir::DeviceId{0}, 1}, {ir::DeviceId{1}, 1}};
  schedule.lanes = {{ir::LaneKind::Compute, ir::DeviceId{0}, ir::DeviceId{0}, {}},
                    {ir::LaneKind::Compute, ir::DeviceId{1}, ir::DeviceId{1}, {}},
                    {ir::LaneKind::Send, ir::DeviceId{0}, ir::DeviceId{1}, {}},
                    {ir::LaneKind::Receive, ir::DeviceId{1}, ir::DeviceId{0}, {}}};
  for (const auto& [text, lane] : tasks) {
    auto task = ir::task_from_text(text);
    REQUIRE_MESSAGE(task.ok(), text);
    task.value().lane = ir::LaneId{lane};
    schedule.lanes[lane].order.push_back(
        ir::TaskId(static_cast<std::uint32_t>(schedule.tasks.size())));
    schedule.tasks.push_back(task.value());
  }
  return schedule;
}

CostModel model() {
  CostModel costs;
  costs.stages = {{.forward = 10,
                   .backward_input = 7,
                   .backward_weight = 8,
                   .step = 100,
                   .predict = 200,
                   .stash = 300},
                  {.forward = 11}};
  costs.links = {{ir::DeviceId{0}, ir::DeviceId{1}, {.bandwidth_bytes_per_s = 1e9, .latency = 40}}};
  costs.task_overhead = 1;
  return costs;
}

TEST_CASE("cost model: each kind's cost, by hand") {
  struct Row {
    const char* task;
    std::uint32_t lane;
    Nanos expected;
  };

  // Overhead 1 on every task of a compute lane; 4096 bytes at 1 GB/s are 4096 ns.
  const std::vector<Row> rows = {
      {"0F0[s0:v0]", 0, 11},
      {"0B0[s0:v0]", 0, 7 + 8 + 1},
      {"0I0[s0:v0]", 0, 8},
      {"0W0[s0:v0]", 0, 9},
      {"0RECOMPUTE0[s0:v0]", 0, 11},
      {"0STEP0[v0]", 0, 101},
      {"0PREDICT_F0[s0:v0>s1+1]", 0, 201},
      {"0STASH0[s0:v0>s1]", 0, 301},
      {"0RELEASE0[s1]", 0, 1},
      {"0ALLREDUCE0", 0, 1},
      {"0SEND_F0[4096B]", 2, 4096},
      {"0SEND_F0[0B]", 2, 0},
      {"0SEND_F0", 2, 0},
      {"1RECV_F0[4096B]", 3, 0},
      {"1F0[s0:v0]", 1, 12},
  };
  for (const Row& row : rows) {
    CAPTURE(row.task);
    const ir::Schedule schedule = schedule_of({{row.task, row.lane}});
    CHECK(duration(model(), schedule, schedule.tasks[0]) == row.expected);
  }
}

TEST_CASE("cost model: latency lies between a send and its own receive, nowhere else") {
  const ir::Schedule schedule = schedule_of({{"0F0[s0:v0]", 0},
                                             {"0SEND_F0[8B]", 2},
                                             {"1RECV_F0[8B]", 3},
                                             {"1RECV_F1[8B]", 3},
                                             {"1F0[s0:v0]", 1}});
  const auto delay = [&](std::uint32_t from, std::uint32_t to) {
    return edge_delay(model(), schedule, {ir::TaskId{from}, ir::TaskId{to}});
  };
  CHECK(delay(1, 2) == 40);
  CHECK(delay(0, 1) == 0);
  CHECK(delay(2, 4) == 0);
  CHECK(delay(1, 3) == 0);
}

TEST_CASE("cost model: a transfer takes bytes over bandwidth, a half goes up, exactly") {
  const auto time = [](double bandwidth, ir::Bytes bytes) {
    return transfer_time({.bandwidth_bytes_per_s = bandwidth}, bytes);
  };
  CHECK(transfer_time({}, 1'000'000) == 0);
  CHECK(time(1e9, 1'000'000) == 1'000'000);
  CHECK(time(2e9, 1) == 1);                    // 0.5
  CHECK(time(2e9, 3) == 2);                    // 1.5
  CHECK(time(3e9, 1) == 0);                    // 0.33
  CHECK(time(25e9, 33'554'432) == 1'342'177);  // 1342177.28
  CHECK(time(0.5, 3) == 6'000'000'000);
  CHECK(time(1e300, 1'000'000) == 0);
  CHECK(time(1e-300, 1) == kTooLarge);
  CHECK(time(5e-324, 0) == 0);
  // 2^53 + 1 bytes: more than a double can tell from 2^53.
  CHECK(time(1e9, 9'007'199'254'740'993) == 9'007'199'254'740'993);
}

TEST_CASE("rounding: scale_half_up is exact where doubles are not") {
  CHECK(scale_half_up(7, 1, 2, 1.0) == 4);
  CHECK(scale_half_up(10, 1, 4, 0.5) == 5);
  CHECK(scale_half_up(1, 1, 1, 0.75) == 1);  // 1.333
  CHECK(scale_half_up(3, 1, 1, 1.5) == 2);   // exactly 2
  CHECK(scale_half_up(9, 1, 1, 6.0) == 2);   // exactly 1.5
  CHECK(scale_half_up(1'000'000'000'000'000'001, 3, 3, 1.0) == 1'000'000'000'000'000'001);
  CHECK(scale_half_up(kTooLarge, 1, 1, 1.0) == kTooLarge);
  CHECK(scale_half_up(kTooLarge, 2, 1, 1.0) == kTooLarge);
  CHECK(scale_half_up(kTooLarge, 4'000'000'000U, 4'000'000'000U, 1.0) == kTooLarge);
}

TEST_CASE("cost model: what a schedule needs and the model lacks is said, all of it") {
  const ir::Schedule schedule = schedule_of({{"1F0[s0:v0]", 1}, {"0SEND_F0[8B]", 2}});
  CostModel costs = model();
  CHECK(check_costs(costs, schedule).ok());
  costs.stages.pop_back();
  costs.links.clear();
  const ir::Status status = check_costs(costs, schedule);
  REQUIRE_FALSE(status.ok());
  REQUIRE(status.error().diagnostics.size() == 2);
  CHECK(status.error().diagnostics[0].where == "stage 1");
  CHECK(status.error().diagnostics[1].where == "link 0>1");
}

TEST_CASE(
    "cost model: launches cost on each task of their device's compute lane, and nowhere else") {
  const ir::Schedule schedule = schedule_of(
      {{"0F0[s0:v0]", 0}, {"0RELEASE0[s1]", 0}, {"1F0[s0:v0]", 1}, {"0SEND_F0[8B]", 2}});
  CostModel costs = model();
  costs.launch_overhead = {5, 0};
  CHECK(duration(costs, schedule, schedule.tasks[0]) == 10 + 1 + 5);
  CHECK(duration(costs, schedule, schedule.tasks[1]) == 1 + 5);
  CHECK(duration(costs, schedule, schedule.tasks[2]) == 11 + 1);
  CHECK(duration(costs, schedule, schedule.tasks[3]) == 8);
}

TEST_CASE("cost model: sums of tied weights and clips cost what the stage says") {
  const ir::Schedule schedule = schedule_of({{"0SUMTIED0[1]", 0}, {"0CLIP0", 0}, {"1CLIP0", 1}});
  CostModel costs = model();
  costs.stages[0].sum_tied = 40;
  costs.stages[0].clip_norm = 6;
  CHECK(duration(costs, schedule, schedule.tasks[0]) == 40 + 1);
  CHECK(duration(costs, schedule, schedule.tasks[1]) == 6 + 1);
  CHECK(duration(costs, schedule, schedule.tasks[2]) == 0 + 1);
}

TEST_CASE("cost model: a replica on another device costs what it costs there") {
  // Stage 0 on devices 0 and 1; tasks of lane 1 are its second replica's.
  const ir::Schedule schedule =
      schedule_of({{"0F0[s0:v0]", 0}, {"0F1[s0:v0]", 1}, {"0ALLREDUCE0", 0}, {"0ALLREDUCE0", 1}});
  CostModel costs = model();
  costs.stages[0].all_reduce = 50;
  costs.replicas = {{ir::StageId{0}, ir::DeviceId{1}, {.forward = 20, .all_reduce = 50}}};
  CHECK(duration(costs, schedule, schedule.tasks[0]) == 11);
  CHECK(duration(costs, schedule, schedule.tasks[1]) == 21);
  CHECK(duration(costs, schedule, schedule.tasks[2]) == 51);
  CHECK(duration(costs, schedule, schedule.tasks[3]) == 51);
  CHECK(costs_on(costs, ir::StageId{1}, ir::DeviceId{1}).forward == 11);
}

TEST_CASE("cost model: channels that there are not, or none on a half-duplex link, are refused") {
  const ir::Schedule schedule = schedule_of({{"0SEND_F0[8B]", 2}});
  const auto told = [&](const CostModel& costs) {
    const ir::Status status = check_costs(costs, schedule);
    return status.ok() ? std::string() : status.error().to_string();
  };
  CostModel costs = model();
  costs.channels = {{"bus", 1e9}};
  costs.links[0].channels = {ChannelId{0}};
  CHECK(told(costs).empty());
  costs.links[0].channels = {ChannelId{0}, ChannelId{3}};
  CHECK(told(costs).find("link 0>1: holds channel 3, the cost model has 1") != std::string::npos);
  costs.links[0].channels = {ChannelId{0}, ChannelId{0}};
  CHECK(told(costs).find("holds channel 0 out of order") != std::string::npos);
  costs.links[0].channels = {};
  costs.links[0].spec.duplex = ir::Duplex::Half;
  CHECK(told(costs).find("is half duplex and has no channel") != std::string::npos);
  add_half_duplex_channels(costs);
  CHECK(told(costs).empty());
}

TEST_CASE("cost model: a slow-down is at least 1, and counts where times could overflow") {
  const ir::Schedule schedule = schedule_of({{"0F0[s0:v0]", 0}, {"0F1[s0:v0]", 0}});
  CostModel costs = model();
  costs.overlap_slowdown = {1.5, 1.0};
  CHECK(check_costs(costs, schedule).ok());
  costs.overlap_slowdown = {0.5, 1.0};
  REQUIRE_FALSE(check_costs(costs, schedule).ok());
  CHECK(check_costs(costs, schedule).error().diagnostics[0].where == "device 0");
  costs.overlap_slowdown = {4.0, 1.0};
  costs.stages[0].forward = kTooLarge / 4;
  REQUIRE_FALSE(check_costs(costs, schedule).ok());
  CHECK(check_costs(costs, schedule).error().diagnostics[0].code == "too-long");
}

TEST_CASE("cost model: a half-duplex pair's channel is as wide as the wider direction") {
  CostModel costs = uniform_costs(2, 3, 1, 1, {1e9, 0, ir::Duplex::Half});
  REQUIRE(costs.channels.size() == 3);
  CHECK(costs.channels[1] == Channel{"0<>2", 1e9});
  set_every_link(costs, {2e9, 0, ir::Duplex::Full});
  CHECK(costs.channels.empty());
  CHECK(costs.links[0].channels.empty());
  costs.links[0].spec = {1e9, 0, ir::Duplex::Half};  // 0 > 1
  costs.links[2].spec = {3e9, 0, ir::Duplex::Half};  // 1 > 0
  add_half_duplex_channels(costs);
  REQUIRE(costs.channels.size() == 1);
  CHECK(costs.channels[0] == Channel{"0<>1", 3e9});
}

TEST_CASE("cost model: times that could overflow are refused before a replay") {
  const ir::Schedule schedule = schedule_of({{"0F0[s0:v0]", 0}, {"0F1[s0:v0]", 0}});
  CostModel costs = model();
  costs.stages[0].forward = kTooLarge / 2 - 2;
  CHECK(check_costs(costs, schedule).ok());
  costs.stages[0].forward = kTooLarge / 2 + 1;
  REQUIRE_FALSE(check_costs(costs, schedule).ok());
  CHECK(check_costs(costs, schedule).error().diagnostics[0].code == "too-long");
}

TEST_CASE("cost model: uniform costs halve a backward, the odd nanosecond to the weights") {
  ir::LinkSpec link;
  link.latency = 9;
  const CostModel costs = uniform_costs(3, 2, 5, 7, link);
  REQUIRE(costs.stages.size() == 3);
  CHECK(costs.stages[2].forward == 5);
  CHECK(costs.stages[2].backward_input == 3);
  CHECK(costs.stages[2].backward_weight == 4);
  REQUIRE(costs.links.size() == 2);
  REQUIRE(find_link(costs, ir::DeviceId{1}, ir::DeviceId{0}) != nullptr);
  CHECK(find_link(costs, ir::DeviceId{1}, ir::DeviceId{0})->latency == 9);
  CHECK(find_link(costs, ir::DeviceId{1}, ir::DeviceId{1}) == nullptr);
}

TEST_CASE("link model: a half-duplex link serves in the order (time ready, task)") {
  ir::Schedule schedule = schedule_of({{"0SEND_F0[8B]", 2}});
  schedule.lanes.push_back({ir::LaneKind::Send, ir::DeviceId{1}, ir::DeviceId{0}, {}});
  CostModel costs = model();
  const ir::LinkSpec half = {
      .bandwidth_bytes_per_s = 1e9, .latency = 0, .duplex = ir::Duplex::Half};
  costs.links = {{ir::DeviceId{0}, ir::DeviceId{1}, half},
                 {ir::DeviceId{1}, ir::DeviceId{0}, half}};
  add_half_duplex_channels(costs);
  REQUIRE(costs.channels.size() == 1);
  CHECK(costs.channels[0] == Channel{"0<>1", 1e9});
  const ChannelId wire{0};
  const ir::LaneId out{2};
  const ir::LaneId back{4};
  LinkChannels channels(costs, schedule);
  REQUIRE(channels.channels_of(out).size() == 1);
  CHECK(channels.channels_of(out).front() == wire);
  CHECK(channels.channels_of(back).front() == wire);
  CHECK(channels.channels_of(ir::LaneId{3}).empty());  // a receive lane
  CHECK_FALSE(channels.grant(wire).has_value());
  channels.request(out, ir::TaskId{9}, 5);
  channels.request(back, ir::TaskId{7}, 5);
  CHECK(channels.is_next(back));
  CHECK_FALSE(channels.is_next(out));
  CHECK(channels.grant(wire) == ir::TaskId{7});
  CHECK_FALSE(channels.grant(wire).has_value());  // busy
  channels.release(back);
  channels.request(back, ir::TaskId{8}, 6);
  CHECK(channels.grant(wire) == ir::TaskId{9});
  channels.release(out);
  CHECK(channels.grant(wire) == ir::TaskId{8});
}

TEST_CASE("link model: a send waits for all its channels, and nobody overtakes it on any") {
  // Lane 2 (0 > 1) crosses channels a and b, lane 4 (1 > 0) b alone, lane 5 (a third way) a alone.
  //   a  busy with lane 5 until it is released
  //   b  free, but lane 2 asked for it before lane 4
  ir::Schedule schedule = schedule_of({{"0SEND_F0[8B]", 2}});
  schedule.lanes.push_back({ir::LaneKind::Send, ir::DeviceId{1}, ir::DeviceId{0}, {}});
  schedule.lanes.push_back({ir::LaneKind::Send, ir::DeviceId{0}, ir::DeviceId{2}, {}});
  CostModel costs = model();
  costs.channels = {{"a", 1e9}, {"b", 1e9}};
  const ChannelId a{0};
  const ChannelId b{1};
  costs.links = {{ir::DeviceId{0}, ir::DeviceId{1}, {1e9, 0}, {a, b}},
                 {ir::DeviceId{0}, ir::DeviceId{2}, {1e9, 0}, {a}},
                 {ir::DeviceId{1}, ir::DeviceId{0}, {1e9, 0}, {b}}};
  LinkChannels channels(costs, schedule);
  const ir::LaneId both{2};
  const ir::LaneId back{4};
  const ir::LaneId other{5};
  channels.request(other, ir::TaskId{1}, 0);
  CHECK(channels.grant(a) == ir::TaskId{1});
  channels.request(both, ir::TaskId{2}, 3);
  channels.request(back, ir::TaskId{0}, 4);
  CHECK(channels.is_next(both));
  CHECK_FALSE(channels.grant(a).has_value());  // busy
  CHECK_FALSE(channels.grant(b).has_value());  // free, but the first in line waits for a
  CHECK_FALSE(channels.is_next(back));
  channels.release(other);
  CHECK(channels.grant(b) == ir::TaskId{2});
  CHECK_FALSE(channels.grant(a).has_value());
  CHECK(channels.is_next(back));
  CHECK_FALSE(channels.grant(b).has_value());
  channels.release(both);
  CHECK(channels.grant(b) == ir::TaskId{0});
}

}  // namespace
}  // namespace xpipe::scheduler
