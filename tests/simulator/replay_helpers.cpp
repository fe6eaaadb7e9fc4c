#include "tests/simulator/replay_helpers.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <doctest/doctest.h>

#include "ir/text.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"

namespace xpipe::tests {

namespace {

using ir::index_of;
using ir::Nanos;

const scheduler::PolicyRegistry& registry() {
  static const scheduler::PolicyRegistry all = [] {
    scheduler::PolicyRegistry r;
    policies::register_all(r);
    return r;
  }();
  return all;
}

const ir::LinkSpec& link_between(const scheduler::CostModel& costs,
                                 ir::DeviceId from,
                                 ir::DeviceId to) {
  for (const scheduler::LinkCosts& link : costs.links) {
    if (link.from == from && link.to == to) {
      return link.spec;
    }
  }
  FAIL("no such link");
  return costs.links.front().spec;
}

/// Doubles are enough for the sizes of these tests, and another way than the product's.
Nanos naive_duration(const scheduler::CostModel& costs,
                     const ir::Schedule& schedule,
                     const ir::Task& task) {
  const scheduler::StageCosts& stage = costs.stages[index_of(task.stage)];
  const ir::Lane& lane = schedule.lane(task.lane);
  std::map<ir::TaskKind, Nanos> table = {
      {ir::TaskKind::Forward, stage.forward},
      {ir::TaskKind::Recompute, stage.forward},
      {ir::TaskKind::Backward, stage.backward_input + stage.backward_weight},
      {ir::TaskKind::BackwardInput, stage.backward_input},
      {ir::TaskKind::BackwardWeight, stage.backward_weight},
      {ir::TaskKind::Step, stage.step},
      {ir::TaskKind::Predict, stage.predict},
      {ir::TaskKind::Stash, stage.stash},
  };
  Nanos time = table[task.kind()];
  if (const auto* send = std::get_if<ir::Send>(&task.payload)) {
    const ir::LinkSpec& link = link_between(costs, lane.device, lane.peer);
    if (link.bandwidth_bytes_per_s.has_value() && send->bytes > 0) {
      time = static_cast<Nanos>(std::floor(
          static_cast<long double>(send->bytes) * 1e9L / *link.bandwidth_bytes_per_s + 0.5L));
    }
  }
  return time + (lane.kind == ir::LaneKind::Compute ? costs.task_overhead : 0);
}

}  // namespace

ir::Schedule schedule_of(const std::string& policy,
                         const Sizes& sizes,
                         const scheduler::Options& options) {
  return schedule_of(policy, sizes, scheduler::chain_of(sizes.stages), options);
}

ir::Schedule schedule_of(const std::string& policy,
                         const Sizes& sizes,
                         const scheduler::StageGraph& graph,
                         const scheduler::Options& options) {
  const auto found = registry().find(policy);
  REQUIRE(found.ok());
  const scheduler::PlanRequest request{.stages = sizes.stages,
                                       .micro_batches = sizes.micro_batches,
                                       .mini_batches = sizes.mini_batches,
                                       .options = options};
  auto schedule = scheduler::compile(*found.value(), request, graph);
  REQUIRE_MESSAGE(schedule.ok(), (schedule.ok() ? "" : schedule.error().to_string()));
  return std::move(schedule).value();
}

scheduler::CostModel equal_stages(std::uint32_t stages, Nanos forward, Nanos backward) {
  return scheduler::uniform_costs(stages, stages, forward, backward, {});
}

scheduler::CostModel uneven_stages(const std::vector<Nanos>& forward,
                                   const std::vector<Nanos>& backward) {
  const auto stages = static_cast<std::uint32_t>(forward.size());
  scheduler::CostModel costs = equal_stages(stages, 0, 0);
  for (std::size_t k = 0; k < forward.size(); ++k) {
    costs.stages[k].forward = forward[k];
    costs.stages[k].backward_input = backward[k] / 2;
    costs.stages[k].backward_weight = backward[k] - backward[k] / 2;
  }
  return costs;
}

ir::Span span_of(const ir::Schedule& schedule, const ir::Timeline& timeline, const char* name) {
  for (std::size_t i = 0; i < schedule.tasks.size(); ++i) {
    const std::string text = ir::to_text(schedule.tasks[i]);
    if (text.substr(0, text.find('[')) == name) {
      return timeline.spans[i];
    }
  }
  FAIL("no task " << name);
  return {};
}

ir::Timeline naive_replay(const ir::Schedule& schedule, const scheduler::CostModel& costs) {
  ir::Timeline timeline;
  std::vector<Nanos> durations;
  for (std::size_t i = 0; i < schedule.tasks.size(); ++i) {
    durations.push_back(naive_duration(costs, schedule, schedule.tasks[i]));
    timeline.spans.push_back({ir::TaskId(static_cast<std::uint32_t>(i)), 0, durations[i]});
  }
  bool moved = true;
  const auto push = [&](ir::TaskId from, ir::TaskId to, Nanos delay) {
    const Nanos at = timeline.spans[index_of(from)].end + delay;
    ir::Span& span = timeline.spans[index_of(to)];
    if (span.start < at) {
      span.start = at;
      span.end = at + durations[index_of(to)];
      moved = true;
    }
  };
  while (moved) {
    moved = false;
    for (const ir::Lane& lane : schedule.lanes) {
      for (std::size_t i = 1; i < lane.order.size(); ++i) {
        push(lane.order[i - 1], lane.order[i], 0);
      }
    }
    for (const ir::Edge& edge : schedule.edges) {
      const ir::Task& from = schedule.task(edge.from);
      const ir::Task& to = schedule.task(edge.to);
      const bool is_message =
          from.kind() == ir::TaskKind::Send && to.kind() == ir::TaskKind::Receive;
      const ir::Lane& lane = schedule.lane(from.lane);
      push(edge.from, edge.to,
           is_message ? link_between(costs, lane.device, lane.peer).latency : 0);
    }
  }
  return timeline;
}

}  // namespace xpipe::tests
