// Memory over time, held against a second count that sorts nothing, against the policies' promises,
// and against limits.
#include "simulator/memory.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "policies/register_all.h"
#include "scheduler/compile.h"
#include "simulator/memory_limit.h"
#include "simulator/simulate.h"
#include "tests/simulator/replay_helpers.h"

namespace xpipe::tests {
namespace {

using ir::Bytes;
using ir::index_of;
using ir::Nanos;
using ir::TaskKind;
using simulator::DeviceMemory;
using simulator::MemoryBytes;
using simulator::MemoryKind;

Bytes of(const MemoryBytes& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

ir::Schedule compiled(const std::string& policy,
                      const Sizes& sizes,
                      const scheduler::Passes& passes,
                      Bytes message = 0) {
  scheduler::PolicyRegistry registry;
  policies::register_all(registry);
  scheduler::StageGraph graph = scheduler::chain_of(sizes.stages);
  for (scheduler::StageLink& link : graph.links) {
    link.bytes = message;
  }
  auto schedule = scheduler::compile(*registry.find(policy).value(),
                                     {.stages = sizes.stages,
                                      .micro_batches = sizes.micro_batches,
                                      .mini_batches = sizes.mini_batches,
                                      .options = {}},
                                     graph, passes);
  REQUIRE_MESSAGE(schedule.ok(), (schedule.ok() ? "" : schedule.error().to_string()));
  return std::move(schedule).value();
}

scheduler::Layout layout_of(const scheduler::LayoutRequest& request) {
  auto layout = scheduler::resolve_layout(request);
  REQUIRE_MESSAGE(layout.ok(), (layout.ok() ? "" : layout.error().to_string()));
  return std::move(layout).value();
}

/// No two stages alike; every size there is.
scheduler::CostModel sized_stages(std::uint32_t stages, std::uint32_t devices, Nanos unit) {
  scheduler::CostModel costs = scheduler::uniform_costs(stages, devices, 10 * unit, 20 * unit,
                                                        {2e9, 3 * unit, ir::Duplex::Full});
  Bytes k = 1;
  for (scheduler::StageCosts& stage : costs.stages) {
    stage.forward += 3 * k * unit;
    stage.backward_weight += k * unit;
    stage.step = 2 * unit;
    stage.predict = unit;
    stage.stash = unit;
    stage.parameter_bytes = 1000 * k;
    stage.optimizer_bytes = 2000 * k;
    stage.prediction_bytes = 500 * k;
    stage.saved_bytes = 80 * k;
    stage.saved_for_weight_bytes = 30 * k;
    stage.kept_bytes = 7 * k;
    stage.recomputed_bytes = 60 * k;
    stage.workspace_bytes = 11 * k;
    ++k;
  }
  return costs;
}

/// What a device holds at `time`, a kind at a time, by asking of every task what it says about this
/// instant: no events, no order. Instants at which something starts or ends are not asked about.
class Census {
 public:
  Census(const ir::Schedule& schedule,
         const ir::Timeline& timeline,
         const scheduler::CostModel& costs)
      : schedule_(schedule), timeline_(timeline), costs_(costs) {}

  Bytes held(std::size_t device, MemoryKind kind, Nanos time) const {
    Bytes sum = 0;
    for (const ir::Lane& lane : schedule_.lanes) {
      if (index_of(lane.device) == device) {
        sum += kind == MemoryKind::Buffers ? messages(lane, time) : computed(lane, kind, time);
      }
    }
    return sum;
  }

 private:
  const ir::Span& span(ir::TaskId id) const { return timeline_.spans[index_of(id)]; }

  Bytes computed(const ir::Lane& lane, MemoryKind kind, Nanos time) const {
    if (lane.kind != ir::LaneKind::Compute) {
      return 0;
    }
    Bytes sum = 0;
    std::map<std::pair<ir::StageId, std::uint32_t>, std::pair<Nanos, Nanos>> gradients;
    for (const ir::TaskId id : lane.order) {
      const ir::Task& task = schedule_.task(id);
      const scheduler::StageCosts& costs = costs_.stages[index_of(task.stage)];
      const bool runs = span(id).start < time && time < span(id).end;
      if (kind == MemoryKind::Workspace && ir::weights_read(task) != nullptr && runs) {
        sum += costs.workspace_bytes;
      } else if (kind == MemoryKind::Activations && task.kind() == TaskKind::Forward) {
        sum += activations(lane, id, costs, time);
      } else if (kind == MemoryKind::Gradients &&
                 (task.kind() == TaskKind::Backward || task.kind() == TaskKind::Step)) {
        const auto batch = index_of(ir::mini_batch_of(task, schedule_.micro_batches));
        const auto [entry, is_new] =
            gradients.try_emplace({task.stage, batch}, span(id).start, span(id).end);
        entry->second.second = span(id).end;
      }
    }
    for (const auto& [key, life] : gradients) {
      sum += life.first < time && time < life.second
                 ? costs_.stages[index_of(key.first)].parameter_bytes
                 : 0;
    }
    return sum;
  }

  Bytes activations(const ir::Lane& lane,
                    ir::TaskId forward,
                    const scheduler::StageCosts& costs,
                    Nanos time) const {
    const ir::Task& task = schedule_.task(forward);
    Nanos recompute = 0;
    Nanos end = 0;
    for (const ir::TaskId id : lane.order) {
      const ir::Task& other = schedule_.task(id);
      if (other.stage == task.stage && ir::micro_batch_of(other) != nullptr &&
          *ir::micro_batch_of(other) == *ir::micro_batch_of(task)) {
        recompute = other.kind() == TaskKind::Recompute ? span(id).start : recompute;
        end = other.kind() == TaskKind::Backward ? span(id).end : end;
      }
    }
    if (time <= span(forward).start || time >= end) {
      return 0;
    }
    return recompute == 0 ? costs.saved_bytes
                          : (time < recompute ? costs.kept_bytes : costs.recomputed_bytes);
  }

  Bytes messages(const ir::Lane& lane, Nanos time) const {
    Bytes sum = 0;
    for (const ir::TaskId id : lane.order) {
      const ir::Task& task = schedule_.task(id);
      for (const ir::Edge& edge : schedule_.edges) {
        if (lane.kind == ir::LaneKind::Send && edge.to == id) {  // its producer
          sum += span(edge.from).end < time && time < span(id).end
                     ? std::get<ir::Send>(task.payload).bytes
                     : 0;
        } else if (lane.kind == ir::LaneKind::Receive && edge.from == id) {  // its user
          const auto send = std::ranges::find(schedule_.edges, id, &ir::Edge::to)->from;
          sum += span(send).start < time && time < span(edge.to).end
                     ? std::get<ir::Receive>(task.payload).bytes
                     : 0;
        }
      }
    }
    return sum;
  }

  const ir::Schedule& schedule_;
  const ir::Timeline& timeline_;
  const scheduler::CostModel& costs_;
};

void check_census(const ir::Schedule& schedule, const scheduler::CostModel& costs) {
  const ir::Timeline timeline = simulator::simulate(schedule, costs);
  const Census census(schedule, timeline, costs);
  const auto memory = simulator::memory_over_time(schedule, timeline, costs);
  for (std::size_t d = 0; d < memory.size(); ++d) {
    for (std::size_t i = 0; i + 1 < memory[d].curve.size(); ++i) {
      const simulator::MemoryPoint& point = memory[d].curve[i];
      if (memory[d].curve[i + 1].time - point.time < 2) {
        continue;  // no instant between
      }
      const Nanos time = (point.time + memory[d].curve[i + 1].time) / 2;
      for (const MemoryKind kind : {MemoryKind::Activations, MemoryKind::Gradients,
                                    MemoryKind::Buffers, MemoryKind::Workspace}) {
        CAPTURE(d);
        CAPTURE(time);
        CAPTURE(simulator::memory_kind_name(kind));
        REQUIRE(of(point.bytes, kind) == census.held(d, kind, time));
      }
    }
  }
}

TEST_CASE("memory: equals a census of every instant, whatever the policy, layout and recompute") {
  using scheduler::Recompute;
  for (const char* policy : {"gpipe", "xpipe", "pipedream"}) {
    for (const Recompute recompute : {Recompute::None, Recompute::Stage}) {
      CAPTURE(policy);
      check_census(compiled(policy, {3, 2, 3}, {.recompute = recompute}, 500),
                   sized_stages(3, 3, 100));
      const scheduler::Layout folded =
          layout_of({.stages = 4, .devices = {}, .placement = {0, 1, 1, 0}, .replicas = {}});
      check_census(compiled(policy, {4, 2, 3}, {.layout = folded, .recompute = recompute}, 500),
                   sized_stages(4, 2, 100));
    }
  }
}

TEST_CASE("memory: tasks that take no time leave nothing behind and still count") {
  const ir::Schedule schedule = compiled("xpipe", {3, 2, 4}, {}, 500);
  scheduler::CostModel costs = sized_stages(3, 3, 0);
  scheduler::set_every_link(costs, {});
  const auto timeline = simulator::simulate(schedule, costs);
  REQUIRE(ir::makespan(timeline) == 0);
  for (const DeviceMemory& device : simulator::memory_over_time(schedule, timeline, costs)) {
    CHECK(device.curve.size() == 1);  // all of it at the instant 0
    CHECK(device.peak > simulator::sum_of(device.curve.front().bytes));
  }
}

TEST_CASE("memory: peaks keep the policies' promises over a grid") {
  for (const std::uint32_t d : {1U, 2U, 3U, 4U, 8U}) {
    for (const std::uint32_t t : {1U, 2U, 4U, 5U}) {
      CAPTURE(d);
      CAPTURE(t);
      const std::uint32_t n = 2 * d + 2;
      scheduler::CostModel costs = equal_stages(d, 100, 200);
      for (scheduler::StageCosts& stage : costs.stages) {
        stage.parameter_bytes = 1000;
        stage.saved_bytes = 1;
      }
      const auto peaks = [&](const char* policy, MemoryKind kind) {
        const ir::Schedule schedule = schedule_of(policy, {d, t, n});
        std::vector<Bytes> bytes;
        for (const DeviceMemory& device :
             simulator::memory_over_time(schedule, simulator::simulate(schedule, costs), costs)) {
          bytes.push_back(of(device.peak_by_kind, kind));
        }
        return bytes;
      };
      const auto gpipe = peaks("gpipe", MemoryKind::Activations);
      const auto xpipe = peaks("xpipe", MemoryKind::Activations);
      const auto pipedream = peaks("pipedream", MemoryKind::Activations);
      const auto copies = peaks("xpipe", MemoryKind::Slots);
      const auto versions = peaks("pipedream", MemoryKind::Slots);
      for (std::uint32_t k = 0; k < d; ++k) {
        CHECK(gpipe[k] == t);                              // T micro-batches
        CHECK(xpipe[k] == std::min<Bytes>(d - k, n * t));  // D - k, as 1F1B
        CHECK(pipedream[k] == std::min<Bytes>(d - k, n));  // D - k mini-batches
        CHECK(1000 + copies[k] <= 3000);                   // P10: at most three copies
        CHECK(1000 + versions[k] == 1000 * (d - k));       // D - k versions
      }
      CHECK(peaks("gpipe", MemoryKind::Slots) == std::vector<Bytes>(d, 0));
      CHECK(peaks("gpipe", MemoryKind::Gradients) == std::vector<Bytes>(d, 1000));
    }
  }
}

TEST_CASE("memory: exchanges and accumulation leave one accumulator, and nothing behind") {
  scheduler::CostModel costs = equal_stages(3, 100, 200);
  for (scheduler::StageCosts& stage : costs.stages) {
    stage.parameter_bytes = 1000;
    stage.clip_norm = 50;
  }
  scheduler::Passes passes;
  passes.accumulate = 2;
  passes.clip_norm = 1.0;
  const ir::Schedule schedule = compiled("gpipe", {3, 2, 5}, passes);
  const auto timeline = simulator::simulate(schedule, costs);
  for (const DeviceMemory& device : simulator::memory_over_time(schedule, timeline, costs)) {
    CHECK(of(device.peak_by_kind, MemoryKind::Gradients) == 1000);
    CHECK(of(device.curve.back().bytes, MemoryKind::Gradients) == 0);
  }
}

TEST_CASE("memory: recomputation keeps its part from forward to recompute, then all to the end") {
  // GPipe, D = 1, T = 3: F0 F1 F2 R0 B0 R1 B1 R2 B2. Kept 7 each, recomputed 60:
  // peak at R0: 2 * 7 + 60.
  scheduler::CostModel costs = sized_stages(1, 1, 100);
  costs.stages[0].workspace_bytes = 0;
  const ir::Schedule schedule =
      compiled("gpipe", {1, 3, 1}, {.recompute = scheduler::Recompute::Stage});
  const auto memory =
      simulator::memory_over_time(schedule, simulator::simulate(schedule, costs), costs);
  CHECK(of(memory[0].peak_by_kind, MemoryKind::Activations) == 2 * 7 + 60);
  const ir::Schedule all = compiled("gpipe", {1, 3, 1}, {});
  const auto without = simulator::memory_over_time(all, simulator::simulate(all, costs), costs);
  CHECK(of(without[0].peak_by_kind, MemoryKind::Activations) == 3 * 80);
}

TEST_CASE("memory: each replica holds weights, state and slots of its own") {
  const scheduler::Layout layout =
      layout_of({.stages = 2, .devices = {}, .placement = {}, .replicas = {2, 1}});
  const ir::Schedule schedule = compiled("gpipe", {2, 4, 2}, {.layout = layout});
  const scheduler::CostModel costs = sized_stages(2, 3, 100);
  const auto memory =
      simulator::memory_over_time(schedule, simulator::simulate(schedule, costs), costs);
  REQUIRE(memory.size() == 3);
  for (const std::size_t d : {0U, 1U}) {
    CHECK(of(memory[d].peak_by_kind, MemoryKind::Weights) == 1000);
    CHECK(of(memory[d].peak_by_kind, MemoryKind::Optimizer) == 2000);
    CHECK(of(memory[d].peak_by_kind, MemoryKind::Activations) == 2 * 80);  // half of T = 4
  }
  CHECK(of(memory[2].peak_by_kind, MemoryKind::Weights) == 2000);
  CHECK(of(memory[2].peak_by_kind, MemoryKind::Activations) == 4 * 160);
}

TEST_CASE("memory: the peaks are the same without the curve") {
  const ir::Schedule schedule = compiled("pipedream", {4, 1, 9}, {}, 500);
  const scheduler::CostModel costs = sized_stages(4, 4, 100);
  const auto timeline = simulator::simulate(schedule, costs);
  const auto kept = simulator::memory_over_time(schedule, timeline, costs);
  const auto dropped =
      simulator::memory_over_time(schedule, timeline, costs, simulator::MemoryCurve::Drop);
  REQUIRE(kept.size() == dropped.size());
  for (std::size_t d = 0; d < kept.size(); ++d) {
    CHECK(kept[d].peak == dropped[d].peak);
    CHECK(kept[d].peak_time == dropped[d].peak_time);
    CHECK(kept[d].at_peak == dropped[d].at_peak);
    CHECK(kept[d].peak_by_kind == dropped[d].peak_by_kind);
    CHECK(simulator::sum_of(kept[d].at_peak) == kept[d].peak);
  }
}

TEST_CASE("memory limit: each device by itself, with stages, moment, kinds and shortfall (E5)") {
  // U(4), 1F1B's order: 40, 30, 20 and 10 MB of activations, 4000 bytes of weights, gradients and
  // Adam's state.
  scheduler::CostModel costs = equal_stages(4, kMilli, 2 * kMilli);
  for (scheduler::StageCosts& stage : costs.stages) {
    stage.saved_bytes = 10'000'000;
    stage.parameter_bytes = 1000;
    stage.optimizer_bytes = 2000;
  }
  const ir::Schedule schedule = schedule_of("xpipe", {4, 8, 1}, {{"predict", "none"}});
  const auto memory =
      simulator::memory_over_time(schedule, simulator::simulate(schedule, costs), costs);
  const auto told = [&](const simulator::MemoryLimits& limits) {
    const ir::Status status = simulator::check_memory(schedule, memory, limits);
    return status.ok() ? std::string() : status.error().to_string();
  };
  const auto all = [](Bytes limit) { return simulator::MemoryLimits(4, limit); };
  CHECK(told(all(41'000'000)).empty());
  CHECK(told({}).empty());
  CHECK(told(simulator::MemoryLimits(4)).empty());
  CHECK(told(all(40'004'000)).empty());  // to the byte
  const std::string zero = told(all(35'000'000));
  for (const char* part :
       {"device 0, stage 0: needs 40004000 bytes 10000 us after the start", "limit is 35000000",
        "5004000 too many", "weights 1000, gradients 1000, optimizer 2000, activations 40000000"}) {
    CHECK_MESSAGE(zero.find(part) != std::string::npos, part, " in ", zero);
  }
  CHECK(zero.find("stage 1") == std::string::npos);
  const std::string three = told({41'000'000, 31'000'000, 21'000'000, 9'000'000});
  CHECK(three.find("device 3, stage 3: needs 10004000 bytes") != std::string::npos);
  CHECK(three.find("limit is 9000000") != std::string::npos);
  CHECK(three.find("device 0") == std::string::npos);
  const ir::Status two = simulator::check_memory(schedule, memory, all(25'000'000));
  REQUIRE_FALSE(two.ok());
  CHECK(two.error().kind == ir::ErrorKind::Illegal);
  CHECK(two.error().diagnostics.size() == 2);
}

TEST_CASE("memory limit: a device of several stages names them all") {
  const scheduler::Layout layout =
      layout_of({.stages = 4, .devices = {}, .placement = {0, 1, 1, 0}, .replicas = {}});
  const ir::Schedule schedule = compiled("gpipe", {4, 2, 1}, {.layout = layout});
  const scheduler::CostModel costs = sized_stages(4, 2, 100);
  const auto memory = simulator::memory_over_time(schedule, simulator::simulate(schedule, costs),
                                                  costs, simulator::MemoryCurve::Drop);
  const ir::Status status = simulator::check_memory(schedule, memory, {1, 1});
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().diagnostics[0].where == "device 0, stages 0, 3");
  CHECK(status.error().diagnostics[1].where == "device 1, stages 1, 2");
}

}  // namespace
}  // namespace xpipe::tests
