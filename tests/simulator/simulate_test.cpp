#include "simulator/simulate.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ir/ids.h"
#include "scheduler/cost_model.h"
#include "tests/simulator/replay_helpers.h"

namespace xpipe::tests {
namespace {

using ir::Nanos;

/// The uneven fixture of the grid tests: no two stages alike, primes so that no sums coincide.
scheduler::CostModel prime_stages(std::uint32_t stages) {
  const std::vector<Nanos> primes = {1009, 1511, 907, 1301, 2003, 811, 1709, 1201};
  std::vector<Nanos> forward;
  std::vector<Nanos> backward;
  for (std::uint32_t k = 0; k < stages; ++k) {
    forward.push_back(primes[k]);
    backward.push_back(2 * primes[(k + 3) % primes.size()] + 1);
  }
  return uneven_stages(forward, backward);
}

TEST_CASE("simulate: gpipe's mini-batch takes (M + D - 1)(f + b) on equal stages") {
  const Nanos f = 1 * kMilli;
  const Nanos b = 2 * kMilli;
  for (const std::uint32_t d : {1U, 2U, 3U, 4U, 8U}) {
    for (const std::uint32_t m : {1U, 2U, 3U, 4U, 8U}) {
      for (const std::uint32_t n : {1U, 2U, 5U}) {
        CAPTURE(d);
        CAPTURE(m);
        CAPTURE(n);
        const ir::Timeline timeline =
            simulator::simulate(schedule_of("gpipe", {d, m, n}), equal_stages(d, f, b));
        CHECK(ir::makespan(timeline) == Nanos{n} * (m + d - 1) * (f + b));
      }
    }
  }
}

TEST_CASE("simulate: xpipe starts every pass in the slot of methods.md 1.1") {
  // f = b = 1 slot, j from 1, k from 0:
  //   F(j,k) = k + j - 1 for j <= D - k, else 2j + k - 2;   B(j,k) = 2j + 2D - 3 - k.
  //   D = 4:  GPU0  1 2 3 4 _ _ _ |1| 5 |2| 6 |3| 7      GPU3  _ _ _ 1 |1| 2 |2| 3 |3|
  for (const std::uint32_t d : {1U, 2U, 3U, 4U, 8U}) {
    for (const std::uint32_t t : {1U, 2U, 4U}) {
      const std::uint32_t n = 4;
      const ir::Schedule schedule = schedule_of("xpipe", {d, t, n});
      const ir::Timeline timeline = simulator::simulate(schedule, equal_stages(d, 1, 1));
      for (std::uint32_t k = 0; k < d; ++k) {
        for (std::uint32_t j = 1; j <= t * n; ++j) {
          const std::string stage = std::to_string(k);
          const std::string micro_batch = std::to_string(j - 1);
          const ir::Span forward = span_of(schedule, timeline, (stage + "F" + micro_batch).c_str());
          const ir::Span backward =
              span_of(schedule, timeline, (stage + "B" + micro_batch).c_str());
          const Nanos expected = j <= d - k ? Nanos{k} + j - 1 : Nanos{2} * j + k - 2;
          CHECK_MESSAGE(forward.start == expected, stage, "F", micro_batch, " D=", d, " T=", t);
          CHECK_MESSAGE(backward.start == Nanos{2} * j + 2 * Nanos{d} - 3 - k, stage, "B",
                        micro_batch, " D=", d, " T=", t);
        }
      }
    }
  }
}

TEST_CASE("simulate: every span equals the fixed point of the naive replay") {
  for (const char* policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    for (const std::uint32_t d : {1U, 2U, 4U, 7U}) {
      for (const std::uint32_t t : {1U, 2U, 5U}) {
        for (const Nanos latency : {Nanos{0}, Nanos{10}, Nanos{777}, Nanos{5003}}) {
          CAPTURE(policy);
          CAPTURE(d);
          CAPTURE(t);
          CAPTURE(latency);
          scheduler::StageGraph graph = scheduler::chain_of(d);
          for (scheduler::StageLink& link : graph.links) {
            link.bytes = 1000 + 37 * static_cast<ir::Bytes>(ir::index_of(link.to));
          }
          scheduler::CostModel costs = prime_stages(d);
          costs.task_overhead = latency % 3;
          for (scheduler::StageCosts& stage : costs.stages) {
            stage.predict = 31;
            stage.step = 57;
            stage.stash = 13;
          }
          for (scheduler::LinkCosts& link : costs.links) {
            link.spec.latency = latency;
            link.spec.bandwidth_bytes_per_s = latency == 10 ? 7e8 : 3e9;
          }
          const ir::Schedule schedule = schedule_of(policy, {d, t, 6}, graph);
          REQUIRE(scheduler::check_costs(costs, schedule).ok());
          CHECK(simulator::simulate(schedule, costs) == naive_replay(schedule, costs));
        }
      }
    }
  }
}

/// Two transfers that nothing orders but their links: three stages on two devices would not do, so
/// by hand. Messages of 1000000 bytes.
///   compute 0: 0F0    send 0>1: 0SEND_F0  (0SEND_F1)     compute 1: 1F0    send 1>0: 1SEND_B0
ir::Schedule two_transfers(bool opposite) {
  ir::Schedule schedule;
  schedule.devices = 2;
  schedule.mini_batches = 1;
  schedule.micro_batches = 2;
  schedule.stages = {{ir::DeviceId{0}, 1}, {ir::DeviceId{1}, 1}};
  const ir::StageId s0{0};
  const ir::StageId s1{1};
  const ir::Bytes mb = 1'000'000;
  const ir::MicroBatch m0{0};
  const ir::MicroBatch m1{1};
  schedule.lanes = {{ir::LaneKind::Send, ir::DeviceId{0}, ir::DeviceId{1}, {ir::TaskId{0}}},
                    {ir::LaneKind::Receive, ir::DeviceId{1}, ir::DeviceId{0}, {ir::TaskId{1}}}};
  schedule.tasks = {{ir::Send{mb, m0, s1, ir::Pass::Forward}, ir::LaneId{0}, s0},
                    {ir::Receive{mb, m0, s0, ir::Pass::Forward}, ir::LaneId{1}, s1}};
  if (opposite) {
    schedule.lanes.push_back(
        {ir::LaneKind::Send, ir::DeviceId{1}, ir::DeviceId{0}, {ir::TaskId{2}}});
    schedule.lanes.push_back(
        {ir::LaneKind::Receive, ir::DeviceId{0}, ir::DeviceId{1}, {ir::TaskId{3}}});
    schedule.tasks.push_back({ir::Send{mb, m1, s0, ir::Pass::Backward}, ir::LaneId{2}, s1});
    schedule.tasks.push_back({ir::Receive{mb, m1, s1, ir::Pass::Backward}, ir::LaneId{3}, s0});
  } else {
    schedule.lanes[0].order.push_back(ir::TaskId{2});
    schedule.lanes[1].order.push_back(ir::TaskId{3});
    schedule.tasks.push_back({ir::Send{mb, m1, s1, ir::Pass::Forward}, ir::LaneId{0}, s0});
    schedule.tasks.push_back({ir::Receive{mb, m1, s0, ir::Pass::Forward}, ir::LaneId{1}, s1});
  }
  schedule.edges = {{ir::TaskId{0}, ir::TaskId{1}}, {ir::TaskId{2}, ir::TaskId{3}}};
  return schedule;
}

scheduler::CostModel one_gigabyte_per_second(ir::Duplex duplex) {
  return scheduler::uniform_costs(
      2, 2, 0, 0, {.bandwidth_bytes_per_s = 1e9, .latency = 10 * kMicro, .duplex = duplex});
}

TEST_CASE("simulate: latency falls on the message, not on the sender (field case G1)") {
  // Two transfers of 1 MB at 1 GB/s, latency 10 us: arrivals 1010 and 2010, the link busy 2000.
  const auto timeline =
      simulator::simulate(two_transfers(false), one_gigabyte_per_second(ir::Duplex::Full));
  CHECK(timeline.spans[0].end == 1000 * kMicro);
  CHECK(timeline.spans[1].end == 1010 * kMicro);
  CHECK(timeline.spans[2].start == 1000 * kMicro);
  CHECK(timeline.spans[2].end == 2000 * kMicro);
  CHECK(timeline.spans[3].end == 2010 * kMicro);
  ir::Schedule empty = two_transfers(false);
  std::get<ir::Send>(empty.tasks[0].payload).bytes = 0;
  std::get<ir::Receive>(empty.tasks[1].payload).bytes = 0;
  const auto at_once = simulator::simulate(empty, one_gigabyte_per_second(ir::Duplex::Full));
  CHECK(at_once.spans[1].end == 10 * kMicro);
}

TEST_CASE("simulate: both directions at once, or first come first served (field case G2)") {
  const ir::Schedule schedule = two_transfers(true);
  const auto full = simulator::simulate(schedule, one_gigabyte_per_second(ir::Duplex::Full));
  CHECK(full.spans[1].end == 1010 * kMicro);
  CHECK(full.spans[3].end == 1010 * kMicro);
  const auto half = simulator::simulate(schedule, one_gigabyte_per_second(ir::Duplex::Half));
  CHECK(half.spans[1].end == 1010 * kMicro);
  CHECK(half.spans[3].end == 2010 * kMicro);
}

TEST_CASE("simulate: a transfer under way does not hold unrelated compute (field case G3)") {
  const ir::Schedule schedule = schedule_of("gpipe", {2, 2, 1});
  scheduler::CostModel costs = equal_stages(2, 100, 200);
  for (scheduler::LinkCosts& link : costs.links) {
    link.spec.latency = 10;
  }
  const auto timeline = simulator::simulate(schedule, costs);
  CHECK(span_of(schedule, timeline, "1F0").start == 110);
  CHECK(ir::makespan(timeline) == 920);
}

TEST_CASE("simulate: xpipe's segment is 1F1B's: (N T + D - 1)(f + b) on equal stages") {
  for (const std::uint32_t d : {1U, 2U, 4U, 8U}) {
    for (const std::uint32_t t : {1U, 2U, 4U}) {
      for (const std::uint32_t n : {1U, 2U, 7U}) {
        CAPTURE(d);
        CAPTURE(t);
        CAPTURE(n);
        const auto timeline =
            simulator::simulate(schedule_of("xpipe", {d, t, n}), equal_stages(d, 10, 20));
        CHECK(ir::makespan(timeline) == (Nanos{n} * t + d - 1) * 30);
      }
    }
  }
}

TEST_CASE("simulate: the same input gives the same spans, half duplex and ties included") {
  for (const char* policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    const ir::Schedule schedule = schedule_of(policy, {4, 3, 5});
    scheduler::CostModel costs = equal_stages(4, 100, 100);
    scheduler::set_every_link(costs, {.duplex = ir::Duplex::Half});
    CHECK(simulator::simulate(schedule, costs) == simulator::simulate(schedule, costs));
  }
}

TEST_CASE("simulate: on a half-duplex link no two transfers overlap, and none waits in vain") {
  scheduler::StageGraph graph = scheduler::chain_of(3);
  for (scheduler::StageLink& link : graph.links) {
    link.bytes = 70;
  }
  for (const char* policy : {"gpipe", "xpipe", "pipedream"}) {
    const ir::Schedule schedule = schedule_of(policy, {3, 2, 6}, graph);
    scheduler::CostModel costs = equal_stages(3, 100, 200);
    scheduler::set_every_link(
        costs, {.bandwidth_bytes_per_s = 1e9, .latency = 3, .duplex = ir::Duplex::Half});
    const auto timeline = simulator::simulate(schedule, costs);
    for (const std::uint16_t low : {std::uint16_t{0}, std::uint16_t{1}}) {
      std::vector<ir::Span> transfers;
      for (const ir::Lane& lane : schedule.lanes) {
        const auto a = ir::index_of(lane.device);
        const auto b = ir::index_of(lane.peer);
        if (lane.kind == ir::LaneKind::Send && std::min(a, b) == low) {
          for (const ir::TaskId id : lane.order) {
            transfers.push_back(timeline.spans[ir::index_of(id)]);
          }
        }
      }
      std::ranges::sort(transfers, {}, &ir::Span::start);
      CHECK(transfers.size() > 2);
      for (std::size_t i = 1; i < transfers.size(); ++i) {
        CHECK(transfers[i].start >= transfers[i - 1].end);
      }
    }
  }
}

}  // namespace
}  // namespace xpipe::tests
