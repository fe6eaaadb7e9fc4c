#include "tests/traces/trace_helpers.h"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

#include "ir/text.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"
#include "scheduler/cost_model.h"
#include "scheduler/ready_tracker.h"
#include "simulator/simulate.h"
#include "traces/chrome_trace.h"

namespace xpipe::tests {

using ir::index_of;
using ir::Nanos;

namespace {

const scheduler::PolicyRegistry& registry() {
  static const scheduler::PolicyRegistry all = [] {
    scheduler::PolicyRegistry r;
    policies::register_all(r);
    return r;
  }();
  return all;
}

}  // namespace

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const scheduler::Policy& policy : registry().all()) {
    names.push_back(policy.name);
  }
  return names;
}

ir::Schedule schedule_for(const TraceCase& wanted) {
  const auto policy = registry().find(wanted.policy);
  REQUIRE(policy.ok());
  scheduler::PlanRequest request;
  request.stages = wanted.stages;
  request.micro_batches = wanted.micro_batches;
  request.mini_batches = wanted.mini_batches;
  request.options = wanted.options;
  auto schedule = scheduler::compile(*policy.value(), request, scheduler::chain_of(wanted.stages));
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  return std::move(schedule).value();
}

ir::Timeline plan_of(const ir::Schedule& schedule, Nanos latency) {
  const auto stages = static_cast<std::uint32_t>(schedule.stages.size());
  ir::LinkSpec link;
  link.latency = latency;
  return simulator::simulate(
      schedule, scheduler::uniform_costs(stages, schedule.devices, 1'000'000, 2'000'000, link));
}

ir::Timeline made_up_run(const ir::Schedule& schedule, std::uint32_t seed) {
  std::mt19937 random(seed);
  const scheduler::TaskGraph graph(schedule);
  ir::Timeline timeline{.measured = true, .spans = {}};
  timeline.spans.resize(schedule.tasks.size());
  for (ir::TaskId task : scheduler::topological_order(graph)) {
    Nanos start = 0;
    for (ir::TaskId before : graph.predecessors(task)) {
      start = std::max(start, timeline.spans[index_of(before)].end);
    }
    start += random() % 2 == 0 ? 0 : static_cast<Nanos>(random() % 6);
    timeline.spans[index_of(task)] = {task, start, start + static_cast<Nanos>(random() % 21)};
  }
  return timeline;
}

ir::TaskId task_named(const ir::Schedule& schedule, const std::string& name) {
  for (std::size_t i = 0; i < schedule.tasks.size(); ++i) {
    const std::string text = to_text(schedule.tasks[i]);
    if (text.substr(0, text.find('[')) == name) {
      return ir::TaskId{static_cast<std::uint32_t>(i)};
    }
  }
  FAIL("no task named " << name);
  return ir::TaskId{0};
}

ir::Timeline drawn(const ir::Schedule& schedule, const Drawing& drawing, bool measured) {
  REQUIRE(drawing.size() == schedule.tasks.size());
  ir::Timeline timeline{.measured = measured, .spans = {}};
  timeline.spans.resize(schedule.tasks.size());
  for (const auto& [name, span] : drawing) {
    const ir::TaskId task = task_named(schedule, name);
    timeline.spans[index_of(task)] = {task, span.first, span.second};
  }
  return timeline;
}

std::string trace_of(const ir::Schedule& schedule,
                     const ir::Timeline& timeline,
                     const traces::TraceInfo& info,
                     const std::vector<traces::CounterSeries>& counters) {
  auto text = traces::chrome_trace(schedule, timeline, info, counters);
  REQUIRE_MESSAGE(text.ok(), text.error().to_string());
  return std::move(text).value();
}

std::string edited(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, "nothing to edit: " << from);
  return text.replace(at, from.size(), to);
}

std::string joined(const std::vector<ir::Diagnostic>& diagnostics) {
  return ir::Error{ir::ErrorKind::Internal, diagnostics}.to_string();
}

}  // namespace xpipe::tests
