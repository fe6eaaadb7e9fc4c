// The replay of a Program: the same as one by one, reused, shifted, scaled; deadlocks; and the
// closed forms of channels that are shared.
#include "simulator/replay.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "ir/text.h"
#include "simulator/channel_queue.h"
#include "simulator/critical_path.h"
#include "simulator/program.h"
#include "simulator/simulate.h"
#include "tests/simulator/replay_helpers.h"

namespace xpipe::tests {
namespace {

using ir::Nanos;
using simulator::CostTable;
using simulator::Program;
using simulator::ReplayState;

ir::Schedule from_text(const std::string& text) {
  auto schedule = ir::schedule_from_text(text, "test.tasks");
  REQUIRE_MESSAGE(schedule.ok(), (schedule.ok() ? "" : schedule.error().to_string()));
  return std::move(schedule).value();
}

scheduler::StageGraph with_bytes(std::uint32_t stages, ir::Bytes bytes) {
  scheduler::StageGraph graph = scheduler::chain_of(stages);
  for (scheduler::StageLink& link : graph.links) {
    link.bytes = bytes;
  }
  return graph;
}

/// All links cross one channel of 1 GB/s.
scheduler::CostModel on_a_bus(std::uint32_t stages, ir::Sharing sharing) {
  scheduler::CostModel costs = equal_stages(stages, 100, 200);
  costs.channels = {{"bus", 1e9}};
  costs.sharing = sharing;
  for (scheduler::LinkCosts& link : costs.links) {
    link.spec.bandwidth_bytes_per_s = 1e9;
    link.channels = {scheduler::ChannelId{0}};
  }
  return costs;
}

TEST_CASE("replay: one program and one state, replayed on many costs, say what simulate() says") {
  const ir::Schedule schedule = schedule_of("xpipe", {4, 3, 4}, with_bytes(4, 70));
  const Program program(schedule);
  ReplayState state;
  for (const Nanos f : {1, 100, 7}) {
    for (const bool bus : {false, true}) {
      for (const ir::Sharing sharing : {ir::Sharing::FirstCome, ir::Sharing::MaxMin}) {
        scheduler::CostModel costs = bus ? on_a_bus(4, sharing) : equal_stages(4, f, 2 * f);
        costs.stages[1].forward = 3 * f;
        const CostTable table = simulator::price(program, costs);
        const auto makespan = simulator::replay(program, table, state);
        REQUIRE(makespan.ok());
        const ir::Timeline timeline = simulator::timeline_of(program, table, state);
        CHECK(timeline == simulator::simulate(schedule, costs));
        CHECK(makespan.value() == ir::makespan(timeline));
        CHECK(state.makespan() == makespan.value());
      }
    }
  }
}

TEST_CASE(
    "replay: a receive lane that follows its sends has no steps, 8 + 12 bytes a step in all") {
  const ir::Schedule schedule = schedule_of("gpipe", {8, 64, 4}, with_bytes(8, 1000));
  const Program program(schedule);
  std::size_t receives = 0;
  for (std::size_t l = 0; l < schedule.lanes.size(); ++l) {
    const bool is_receive = schedule.lanes[l].kind == ir::LaneKind::Receive;
    CHECK(program.lanes()[l].follows.has_value() == is_receive);
    receives += is_receive ? schedule.lanes[l].order.size() : 0;
  }
  CHECK(receives > 0);
  CHECK(program.steps().size() == schedule.tasks.size() - receives + 1);
  ReplayState state;
  const CostTable table = simulator::price(program, equal_stages(8, 1, 2));
  REQUIRE(simulator::replay(program, table, state).ok());
  const double bytes = static_cast<double>(program.heap_bytes() + state.heap_bytes()) /
                           static_cast<double>(schedule.tasks.size()) +
                       sizeof(ir::Span);
  CHECK(bytes < 64.0);
}

TEST_CASE("replay: a receive that waits for more than its send is a step of its own") {
  // 1RECV_F0 is posted only after 1F1's own send of something else; here: after 1STEP-less 1F9.
  ir::Schedule schedule = schedule_of("gpipe", {3, 2, 1}, with_bytes(3, 1000));
  const auto find = [&](const std::string& name) {
    for (std::uint32_t i = 0; i < schedule.tasks.size(); ++i) {
      const std::string text = ir::to_text(schedule.tasks[i]);
      if (text.substr(0, text.find('[')) == name) {
        return ir::TaskId{i};
      }
    }
    FAIL("no task " << name);
    return ir::TaskId{};
  };
  // Stage 2 takes its second activations only when stage 0 has sent them and stage 1 has sent its
  // first: ordered anyway, said twice.
  schedule.edges.push_back({find("1SEND_F0"), find("2RECV_F1")});
  std::ranges::sort(schedule.edges);
  const Program program(schedule);
  std::size_t with_steps = 0;
  for (std::size_t l = 0; l < schedule.lanes.size(); ++l) {
    with_steps += schedule.lanes[l].kind == ir::LaneKind::Receive && !program.lanes()[l].follows;
  }
  CHECK(with_steps == 1);
  scheduler::CostModel costs = equal_stages(3, 100, 200);
  for (scheduler::LinkCosts& link : costs.links) {
    link.spec.latency = 10;
    link.spec.bandwidth_bytes_per_s = 1e10;
  }
  CHECK(simulator::simulate(schedule, costs) == naive_replay(schedule, costs));
}

TEST_CASE("replay: a deadlock is an error with the ring by device, whatever the costs") {
  // Each device wants what the other sends only after its own task: 0F0 waits for 1F0, 1F0 for 0F0.
  ir::Schedule schedule = schedule_of("gpipe", {2, 1, 1}, with_bytes(2, 1000));
  std::ranges::reverse(schedule.lanes[0].order);
  for (const ir::Sharing sharing : {ir::Sharing::FirstCome, ir::Sharing::MaxMin}) {
    for (const bool bus : {false, true}) {
      const scheduler::CostModel costs = bus ? on_a_bus(2, sharing) : equal_stages(2, 1, 2);
      const auto stopped = simulator::replay_segment(schedule, costs);
      REQUIRE_FALSE(stopped.ok());
      CHECK(stopped.error().kind == ir::ErrorKind::Illegal);
      const std::string text = stopped.error().to_string();
      CHECK(text.find("wait for each other in a ring") != std::string::npos);
      CHECK(text.find("device 0: ") != std::string::npos);
      CHECK(text.find("device 1: ") != std::string::npos);
      CHECK(text.find("[cycle]") != std::string::npos);
    }
  }
}

TEST_CASE("channel queue: earliest possible first, no overtaking, all of one instant together") {
  // Lanes 0 and 1 hold channel 0, lane 2 both, lane 3 channel 1.
  const std::vector<std::uint32_t> begin = {0, 1, 2, 4, 5};
  const std::vector<scheduler::ChannelId> channels = {
      scheduler::ChannelId{0}, scheduler::ChannelId{0}, scheduler::ChannelId{0},
      scheduler::ChannelId{1}, scheduler::ChannelId{1}};
  const std::vector<Nanos> durations = {10, 20, 30, 5};
  simulator::ChannelQueue queue;
  queue.reset(begin, channels, 2);
  CHECK(queue.empty());
  queue.request(1, ir::TaskId{7}, 4);
  queue.request(0, ir::TaskId{9}, 4);  // after 7, by id
  queue.request(2, ir::TaskId{1}, 5);  // third on channel 0, first on 1
  queue.request(3, ir::TaskId{8}, 6);  // behind it on channel 1: may not overtake
  std::vector<std::pair<Nanos, std::uint32_t>> order;
  while (!queue.empty()) {
    const Nanos at = queue.grant([&](std::uint32_t lane) { return durations[lane]; });
    for (const std::uint32_t lane : queue.granted()) {
      order.emplace_back(at, lane);
    }
  }
  const std::vector<std::pair<Nanos, std::uint32_t>> expected = {{4, 1}, {24, 0}, {34, 2}, {64, 3}};
  CHECK(order == expected);
}

/// A random set-up, contention and sharing included.
std::pair<ir::Schedule, scheduler::CostModel> any_run() {
  const std::string policy =
      *rc::gen::element(std::string("gpipe"), std::string("xpipe"), std::string("pipedream"));
  const auto stages = *rc::gen::inRange<std::uint32_t>(1, 6);
  const auto micro_batches = *rc::gen::inRange<std::uint32_t>(1, 5);
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  scheduler::CostModel costs =
      on_a_bus(stages, random() % 2 == 0 ? ir::Sharing::FirstCome : ir::Sharing::MaxMin);
  for (scheduler::StageCosts& stage : costs.stages) {
    stage.forward = random() % 300;
    stage.backward_input = random() % 300;
  }
  for (scheduler::LinkCosts& link : costs.links) {
    link.spec.latency = random() % 50;
    if (random() % 2 == 0) {
      link.channels.clear();
    }
  }
  if (random() % 3 == 0) {
    costs.overlap_slowdown.assign(stages, 1.25);
  }
  return {schedule_of(policy, {stages, micro_batches, 3}, with_bytes(stages, random() % 200)),
          costs};
}

TEST_CASE("replay: nothing starts before what it waits for, and lanes do one thing at a time") {
  CHECK(rc::check("order", [] {
    const auto [schedule, costs] = any_run();
    const ir::Timeline timeline = simulator::simulate(schedule, costs);
    const auto span = [&timeline = timeline](ir::TaskId id) {
      return timeline.spans[ir::index_of(id)];
    };
    for (const ir::Edge& edge : schedule.edges) {
      RC_ASSERT(span(edge.from).end + scheduler::edge_delay(costs, schedule, edge) <=
                span(edge.to).start);
    }
    for (const ir::Lane& lane : schedule.lanes) {
      for (std::size_t i = 1; i < lane.order.size(); ++i) {
        RC_ASSERT(span(lane.order[i - 1]).end <= span(lane.order[i]).start);
      }
    }
    for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
      const Nanos least = scheduler::duration(costs, schedule, schedule.tasks[i]);
      RC_ASSERT(timeline.spans[i].end - timeline.spans[i].start >= least);
    }
  }));
}

TEST_CASE("replay: all times k times as long make all spans k times as long, first come") {
  CHECK(rc::check("scale", [] {
    auto [schedule, costs] = any_run();
    costs.sharing = ir::Sharing::FirstCome;
    costs.overlap_slowdown.clear();
    const ir::Timeline once = simulator::simulate(schedule, costs);
    scheduler::CostModel scaled = costs;
    for (scheduler::StageCosts& stage : scaled.stages) {
      stage.forward *= 3;
      stage.backward_input *= 3;
      stage.backward_weight *= 3;
    }
    for (scheduler::LinkCosts& link : scaled.links) {
      link.spec.latency *= 3;
    }
    ir::Schedule larger = schedule;
    for (ir::Task& task : larger.tasks) {
      if (auto* send = std::get_if<ir::Send>(&task.payload)) {
        send->bytes *= 3;  // 1 GB/s: whole nanoseconds
      }
    }
    const ir::Timeline thrice = simulator::simulate(larger, scaled);
    for (std::size_t i = 0; i < once.spans.size(); ++i) {
      RC_ASSERT(thrice.spans[i].start == 3 * once.spans[i].start);
      RC_ASSERT(thrice.spans[i].end == 3 * once.spans[i].end);
    }
  }));
}

TEST_CASE("replay: without contention, slower never ends earlier") {
  CHECK(rc::check("monotone", [] {
    auto [schedule, costs] = any_run();
    costs.overlap_slowdown.clear();
    costs.channels.clear();
    for (scheduler::LinkCosts& link : costs.links) {
      link.channels.clear();
    }
    scheduler::CostModel slower = costs;
    slower.stages[*rc::gen::inRange<std::size_t>(0, costs.stages.size())].forward += 17;
    const ir::Timeline a = simulator::simulate(schedule, costs);
    const ir::Timeline b = simulator::simulate(schedule, slower);
    for (std::size_t i = 0; i < a.spans.size(); ++i) {
      RC_ASSERT(a.spans[i].end <= b.spans[i].end);
    }
  }));
}

/// Two transfers from devices of their own, on one channel; 1000 bytes at 1 GB/s each.
constexpr const char* kTwoTransfers = R"(# xpipe.schedule 1
policy by-hand
micro-batches 2
mini-batches 1
devices 3
stage 0 device 0 slots 1
stage 1 device 1 slots 1
stage 2 device 2 slots 1
compute 0: 0F0[s0:v0] 0F1[s0:v0]
compute 1: 1F0[s0:v0] 1F1[s0:v0]
compute 2: 2F0[s0:v0] 2F1[s0:v0]
send 0>1: 0SEND_F0[1000B] 0SEND_F1[1000B]
receive 0>1: 1RECV_F0[1000B] 1RECV_F1[1000B]
send 1>2: 1SEND_F0[1000B] 1SEND_F1[1000B]
receive 1>2: 2RECV_F0[1000B] 2RECV_F1[1000B]
edges: 0F0>0SEND_F0 0SEND_F0>1RECV_F0 1RECV_F0>1F0 0F1>0SEND_F1 0SEND_F1>1RECV_F1 1RECV_F1>1F1 1F0>1SEND_F0 1SEND_F0>2RECV_F0 2RECV_F0>2F0 1F1>1SEND_F1 1SEND_F1>2RECV_F1 2RECV_F1>2F1
)";

TEST_CASE("replay: transfers share a channel, and each goes faster when the other has ended") {
  //            0    100       1100 1200
  // compute 0  |F0|F1|                       f = 100
  // send 0>1       |F0--------||F1 alone..... at 1 GB/s
  // compute 1                  |F0|
  // send 1>2                      |F0....     from 1200 on both at half speed
  // F1 of 0>1: 1100..1200 alone (100 B), then 900 B at 1/2: ends 3000; F0 of 1>2: 900 B by 3000,
  // then the last 100 B alone, unless 1F1 (3000..3100) sends: ends 3100.
  const ir::Schedule schedule = from_text(kTwoTransfers);
  const scheduler::CostModel costs = on_a_bus(3, ir::Sharing::MaxMin);
  const ir::Timeline timeline = simulator::simulate(schedule, costs);
  CHECK(span_of(schedule, timeline, "0SEND_F0").end == 1100);
  CHECK(span_of(schedule, timeline, "0SEND_F1").start == 1100);
  CHECK(span_of(schedule, timeline, "0SEND_F1").end == 3000);
  CHECK(span_of(schedule, timeline, "1SEND_F0").start == 1200);
  CHECK(span_of(schedule, timeline, "1SEND_F0").end == 3100);
  CHECK(span_of(schedule, timeline, "1SEND_F1").start == 3100);
  CHECK(ir::makespan(timeline) == 4200);
  // First come: 100..1100, 1100..2100, then 1SEND_F0 (ready at 1200) 2100..3100, 1SEND_F1 4100.
  const ir::Timeline first = simulator::simulate(schedule, on_a_bus(3, ir::Sharing::FirstCome));
  CHECK(span_of(schedule, first, "0SEND_F1").end == 2100);
  CHECK(span_of(schedule, first, "1SEND_F0").start == 2100);
  CHECK(ir::makespan(first) == 4200);
}

TEST_CASE("replay: compute is slowed while a transfer runs from or to the device, and only then") {
  // 0F1 runs 100..200 beside 0SEND_F0 (100..1100): at half speed it ends at 300.
  const ir::Schedule schedule = from_text(kTwoTransfers);
  scheduler::CostModel costs = equal_stages(3, 100, 200);
  for (scheduler::LinkCosts& link : costs.links) {
    link.spec = {.bandwidth_bytes_per_s = 1e9, .latency = 50};
  }
  costs.overlap_slowdown = {2.0, 1.0, 1.0};
  const ir::Timeline timeline = simulator::simulate(schedule, costs);
  CHECK(span_of(schedule, timeline, "0F0").end == 100);
  CHECK(span_of(schedule, timeline, "0F1").end == 300);
  CHECK(span_of(schedule, timeline, "1F0").start == 1150);
  CHECK(span_of(schedule, timeline, "1F0").end == 1250);  // beside 0SEND_F1, but its factor is 1
  // The receiver too: 1F0 1150..1250 lies in 0SEND_F1's 1100..2100.
  costs.overlap_slowdown = {1.0, 3.0, 1.0};
  CHECK(span_of(schedule, simulator::simulate(schedule, costs), "1F0").end == 1450);
  // A transfer that ends in between: 150 of work from 1000 on, 100 ns at half speed, then alone.
  costs.overlap_slowdown = {2.0, 1.0, 1.0};
  costs.stages[0].forward = 1000;
  const ir::Timeline longer = simulator::simulate(schedule, costs);
  CHECK(span_of(schedule, longer, "0F1").end == 2500);  // 1000..2000 half speed, 500 left
  const simulator::CriticalPath path = simulator::critical_path(schedule, longer, costs);
  CHECK(path.slowed == 500);
}

TEST_CASE("replay: the critical path accounts for the whole makespan, however links are shared") {
  CHECK(rc::check("by kind and latency add up", [] {
    const auto [schedule, costs] = any_run();
    const ir::Timeline timeline = simulator::simulate(schedule, costs);
    const simulator::CriticalPath path = simulator::critical_path(schedule, timeline, costs);
    Nanos sum = path.latency;
    for (const Nanos kind : path.by_kind) {
      sum += kind;
    }
    RC_ASSERT(sum == ir::makespan(timeline));
    RC_ASSERT(path.slowed >= 0);
  }));
}

}  // namespace
}  // namespace xpipe::tests
