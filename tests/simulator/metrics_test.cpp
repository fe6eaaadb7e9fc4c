#include "simulator/metrics.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "simulator/critical_path.h"
#include "simulator/memory.h"
#include "simulator/simulate.h"
#include "tests/simulator/replay_helpers.h"

namespace xpipe::tests {
namespace {

using doctest::Approx;
using ir::Nanos;
using simulator::MemoryKind;

ir::Bytes of_kind(const simulator::MemoryBytes& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

scheduler::StageGraph chain_with(std::uint32_t stages, ir::Bytes bytes) {
  scheduler::StageGraph graph = scheduler::chain_of(stages);
  for (scheduler::StageLink& link : graph.links) {
    link.bytes = bytes;
  }
  return graph;
}

TEST_CASE("metrics: gpipe's bubble is (D-1)/(M+D-1) of the total and (D-1)/M of the ideal") {
  for (const std::uint32_t d : {1U, 2U, 4U, 8U}) {
    for (const std::uint32_t m : {1U, 3U, 8U}) {
      CAPTURE(d);
      CAPTURE(m);
      const ir::Schedule schedule = schedule_of("gpipe", {d, m, 3});
      const auto metrics = simulator::measure(
          schedule, simulator::simulate(schedule, equal_stages(d, kMilli, 2 * kMilli)));
      CHECK(metrics.bubble_of_total == Approx((d - 1.0) / (m + d - 1.0)));
      CHECK(metrics.bubble_of_ideal == Approx((d - 1.0) / m));
      for (const simulator::DeviceUse& device : metrics.devices) {
        CHECK(device.busy == Nanos{3} * m * 3 * kMilli);
        CHECK(device.utilization == Approx(m / (m + d - 1.0)));
        CHECK(device.exposed_communication == 0);
      }
    }
  }
}

TEST_CASE("metrics: the bubble of the longest span leaves out what lies outside it") {
  // D = 2, M = 1, gpipe, f = 1, b = 2: device 0 spans 0..6 and is busy 3; device 1 spans 1..4.
  const ir::Schedule schedule = schedule_of("gpipe", {2, 1, 1});
  const auto metrics =
      simulator::measure(schedule, simulator::simulate(schedule, equal_stages(2, 1, 2)));
  CHECK(metrics.bubble_of_longest == Approx(0.5));
  CHECK(metrics.devices[1].first_start == 1);
  CHECK(metrics.devices[1].last_end == 4);
}

TEST_CASE("metrics: layers that cost nothing have utilization 0 (field case F2)") {
  const ir::Schedule schedule = schedule_of("gpipe", {4, 2, 1});
  const scheduler::CostModel costs = uneven_stages({1000, 0, 0, 1000}, {2000, 0, 0, 2000});
  const auto metrics = simulator::measure(schedule, simulator::simulate(schedule, costs));
  CHECK(metrics.makespan == 9000);
  CHECK(metrics.devices[0].utilization == Approx(0.666667).epsilon(1e-6));
  CHECK(metrics.devices[1].utilization == 0.0);
  CHECK(metrics.devices[2].utilization == 0.0);
  const scheduler::CostModel nothing = equal_stages(4, 0, 0);
  const auto empty = simulator::measure(schedule, simulator::simulate(schedule, nothing));
  CHECK(empty.makespan == 0);
  CHECK(empty.bubble_of_ideal == 0.0);
  CHECK(empty.devices[0].utilization == 0.0);
}

TEST_CASE("metrics: every transfer and byte is counted (field case G5)") {
  const ir::Schedule schedule = schedule_of("gpipe", {4, 8, 1}, chain_with(4, 1'000'000));
  scheduler::CostModel costs = equal_stages(4, kMilli, 2 * kMilli);
  for (scheduler::LinkCosts& link : costs.links) {
    link.spec.bandwidth_bytes_per_s = 1e9;
  }
  const auto metrics = simulator::measure(schedule, simulator::simulate(schedule, costs));
  CHECK(metrics.transfers == 48);
  CHECK(metrics.bytes == 48'000'000);
  REQUIRE(metrics.links.size() == 6);
  for (const simulator::LinkUse& link : metrics.links) {
    CHECK(link.transfers == 8);
    CHECK(link.bytes == 8'000'000);
    CHECK(link.busy == 8 * kMilli);
    CHECK(link.utilization == Approx(8.0 * kMilli / static_cast<double>(metrics.makespan)));
  }
  const ir::Schedule large = schedule_of("gpipe", {8, 8, 1}, chain_with(8, 33'554'432));
  const auto eight =
      simulator::measure(large, simulator::simulate(large, equal_stages(8, 500'000, kMilli)));
  CHECK(eight.transfers == 112);
  CHECK(eight.bytes == 3'758'096'384);
}

TEST_CASE("metrics: exposed communication is the idle time behind a message under way") {
  // D = 2, M = 1, latency 10, f = 100, b = 200:
  //   0F0 0..100, 1F0 110..210, 1B0 210..410, 0B0 420..620
  // Device 1 idles 0..110: 100 for stage 0's work, 10 for the message. Device 0 idles 100..420.
  const ir::Schedule schedule = schedule_of("gpipe", {2, 1, 1});
  scheduler::CostModel costs = equal_stages(2, 100, 200);
  for (scheduler::LinkCosts& link : costs.links) {
    link.spec.latency = 10;
  }
  const auto metrics = simulator::measure(schedule, simulator::simulate(schedule, costs));
  CHECK(metrics.makespan == 620);
  CHECK(metrics.devices[0].exposed_communication == 10);
  CHECK(metrics.devices[1].exposed_communication == 10);
  CHECK(metrics.exposed_of_total == Approx(20.0 / (2 * 620)).epsilon(1e-12));
}

TEST_CASE("metrics: samples per second need time to pass") {
  CHECK(simulator::samples_per_second(64, kMilli) == Approx(64'000.0));
  CHECK_FALSE(simulator::samples_per_second(64, 0).has_value());
}

TEST_CASE("memory: in flight M with gpipe, D - k with xpipe, capped by the stream (E1)") {
  using Peaks = std::vector<std::uint32_t>;
  CHECK(simulator::peak_in_flight(schedule_of("gpipe", {4, 8, 1})) == Peaks{8, 8, 8, 8});
  CHECK(simulator::peak_in_flight(schedule_of("xpipe", {4, 2, 4})) == Peaks{4, 3, 2, 1});
  CHECK(simulator::peak_in_flight(schedule_of("xpipe", {4, 3, 1})) == Peaks{3, 3, 2, 1});
}

TEST_CASE("memory: peaks by kind, by hand") {
  // Parameters 1000, state 2000, 80 bytes kept per micro-batch; messages of 7 bytes.
  for (const char* policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    CAPTURE(policy);
    const ir::Schedule schedule = schedule_of(policy, {4, 2, 6}, chain_with(4, 7));
    scheduler::CostModel costs = equal_stages(4, 100, 200);
    for (scheduler::StageCosts& stage : costs.stages) {
      stage.parameter_bytes = 1000;
      stage.optimizer_bytes = 2000;
      stage.saved_bytes = 80;
      stage.prediction_bytes = 500;  // counted where the stage predicts
      stage.step = 5;
      stage.predict = 5;
      stage.stash = 5;
    }
    const auto timeline = simulator::simulate(schedule, costs);
    const auto memory = simulator::memory_over_time(schedule, timeline, costs);
    const auto in_flight = simulator::peak_in_flight(schedule);
    REQUIRE(memory.size() == 4);
    for (std::size_t k = 0; k < 4; ++k) {
      const simulator::DeviceMemory& device = memory[k];
      CHECK(of_kind(device.peak_by_kind, MemoryKind::Weights) == 1000);
      const bool predicts = std::ranges::any_of(schedule.tasks, [k](const ir::Task& task) {
        return task.kind() == ir::TaskKind::Predict && ir::index_of(task.stage) == k;
      });
      const ir::Bytes optimizer = predicts ? 2500 : 2000;
      CHECK(of_kind(device.peak_by_kind, MemoryKind::Optimizer) == optimizer);
      CHECK(of_kind(device.peak_by_kind, MemoryKind::Gradients) == 1000);
      CHECK(of_kind(device.peak_by_kind, MemoryKind::Activations) == 80 * in_flight[k]);
      CHECK(of_kind(device.peak_by_kind, MemoryKind::Buffers) >= 7);
      CHECK(device.curve.front().time == 0);
      CHECK(device.curve.back().bytes == simulator::MemoryBytes{1000, 0, 0, optimizer, 0, 0, 0});
      ir::Bytes largest = 0;
      for (std::size_t i = 0; i < device.curve.size(); ++i) {
        const simulator::MemoryBytes& bytes = device.curve[i].bytes;
        largest = std::max(largest, std::accumulate(bytes.begin(), bytes.end(), ir::Bytes{0}));
        CHECK((i == 0 || device.curve[i].time > device.curve[i - 1].time));
      }
      CHECK(device.peak >= largest);
    }
  }
}

TEST_CASE("memory: pipedream's stage k stashes D - 1 - k copies, xpipe's slots stay below three") {
  for (const std::uint32_t d : {2U, 4U, 8U}) {
    scheduler::CostModel costs = equal_stages(d, 100, 200);
    for (scheduler::StageCosts& stage : costs.stages) {
      stage.parameter_bytes = 1000;
      stage.stash = 1;
      stage.predict = 1;
      stage.step = 1;
    }
    const auto slots_of = [&](const char* policy) {
      const ir::Schedule schedule = schedule_of(policy, {d, 1, 3 * d});
      std::vector<ir::Bytes> slots;
      for (const simulator::DeviceMemory& device :
           simulator::memory_over_time(schedule, simulator::simulate(schedule, costs), costs)) {
        slots.push_back(of_kind(device.peak_by_kind, MemoryKind::Slots));
      }
      return slots;
    };
    const auto pipedream = slots_of("pipedream");
    const auto xpipe = slots_of("xpipe");
    for (std::uint32_t k = 0; k < d; ++k) {
      CHECK(pipedream[k] == 1000 * static_cast<ir::Bytes>(d - 1 - k));
      CHECK(xpipe[k] <= 2000);
    }
  }
}

TEST_CASE("memory: a message is held on both sides while it travels") {
  // D = 2, M = 1, f = 100, b = 200, 50 bytes at 1 GB/s, latency 10:
  //   0F0 0..100, send 100..150, receive 160, 1F0 160..260, 1B0 260..460, send 460..510, ...
  // Sender's buffer 100..150, receiver's 100..260; back: 460..510 and 460..720.
  const ir::Schedule schedule = schedule_of("gpipe", {2, 1, 1}, chain_with(2, 50));
  scheduler::CostModel costs = equal_stages(2, 100, 200);
  for (scheduler::LinkCosts& link : costs.links) {
    link.spec = {.bandwidth_bytes_per_s = 1e9, .latency = 10};
  }
  const auto timeline = simulator::simulate(schedule, costs);
  const auto memory = simulator::memory_over_time(schedule, timeline, costs);
  const auto buffers = [&](std::size_t device) {
    std::vector<std::pair<Nanos, ir::Bytes>> points;
    for (const simulator::MemoryPoint& point : memory[device].curve) {
      points.emplace_back(point.time, of_kind(point.bytes, MemoryKind::Buffers));
    }
    return points;
  };
  using Points = std::vector<std::pair<Nanos, ir::Bytes>>;
  CHECK(buffers(0) == Points{{0, 0}, {100, 50}, {150, 0}, {460, 50}, {720, 0}});
  CHECK(buffers(1) == Points{{0, 0}, {100, 50}, {260, 0}, {460, 50}, {510, 0}});
}

TEST_CASE("critical path: its tasks and latencies add up to the makespan, without a gap") {
  for (const char* policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    for (const Nanos latency : {Nanos{0}, Nanos{13}}) {
      for (const ir::Duplex duplex : {ir::Duplex::Full, ir::Duplex::Half}) {
        CAPTURE(policy);
        CAPTURE(latency);
        const ir::Schedule schedule = schedule_of(policy, {4, 3, 5}, chain_with(4, 60));
        scheduler::CostModel costs = uneven_stages({50, 70, 60, 40}, {90, 80, 70, 110});
        scheduler::set_every_link(
            costs, {.bandwidth_bytes_per_s = 1e9, .latency = latency, .duplex = duplex});
        const auto timeline = simulator::simulate(schedule, costs);
        const auto path = simulator::critical_path(schedule, timeline, costs);
        REQUIRE_FALSE(path.tasks.empty());
        CHECK(path.tasks.front().start == 0);
        CHECK(path.tasks.back().end == ir::makespan(timeline));
        Nanos gaps = 0;
        for (std::size_t i = 1; i < path.tasks.size(); ++i) {
          const Nanos gap = path.tasks[i].start - path.tasks[i - 1].end;
          CHECK((gap == 0 || gap == latency));
          gaps += gap;
        }
        CHECK(path.latency == gaps);
        CHECK(std::accumulate(path.by_kind.begin(), path.by_kind.end(), gaps) ==
              ir::makespan(timeline));
      }
    }
  }
}

TEST_CASE("critical path: through a half-duplex link it names the transfer that was in the way") {
  const ir::Schedule schedule = schedule_of("xpipe", {2, 1, 6}, chain_with(2, 900));
  scheduler::CostModel costs = equal_stages(2, 100, 200);
  scheduler::set_every_link(
      costs, {.bandwidth_bytes_per_s = 1e9, .latency = 0, .duplex = ir::Duplex::Half});
  const auto timeline = simulator::simulate(schedule, costs);
  const auto path = simulator::critical_path(schedule, timeline, costs);
  // One channel, wanted all the time: the first forward, 12 transfers of 900 ns, the last backward.
  CHECK(ir::makespan(timeline) == 100 + 12 * 900 + 200);
  CHECK(path.by_kind[static_cast<std::size_t>(ir::TaskKind::Send)] == 12 * 900);
}

}  // namespace
}  // namespace xpipe::tests
