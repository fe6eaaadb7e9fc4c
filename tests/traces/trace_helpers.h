// What the tests of traces/ share: schedules of real policies, timelines planned, made up or drawn
// by hand.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/schedule.h"
#include "ir/timeline.h"
#include "scheduler/policy.h"
#include "traces/timeline_file.h"

namespace xpipe::tests {

struct TraceCase {
  std::string policy = "gpipe";
  std::uint32_t stages = 2;
  std::uint32_t micro_batches = 1;
  std::uint32_t mini_batches = 1;
  scheduler::Options options{};
};

[[nodiscard]] std::vector<std::string> policy_names();

/// The registered policy, compiled. Fails the test when it cannot be.
[[nodiscard]] ir::Schedule schedule_for(const TraceCase& wanted);

/// Simulated: forward 1 ms, backward 2 ms; free prediction and steps; links of the given latency.
[[nodiscard]] ir::Timeline plan_of(const ir::Schedule& schedule, ir::Nanos latency = 0);

/// A run as no machine made it: every task takes a random time of [0, 20] ns and starts up to 5 ns
/// after it could. The same seed gives the same timeline.
[[nodiscard]] ir::Timeline made_up_run(const ir::Schedule& schedule, std::uint32_t seed);

/// Spans by the tasks' text up to the bracket: {"1F0", {130, 230}}. Every task must have one.
using Drawing = std::map<std::string, std::pair<ir::Nanos, ir::Nanos>>;
[[nodiscard]] ir::Timeline drawn(const ir::Schedule& schedule,
                                 const Drawing& drawing,
                                 bool measured);

[[nodiscard]] ir::TaskId task_named(const ir::Schedule& schedule, const std::string& name);

/// The trace's text. Fails the test when it cannot be written.
[[nodiscard]] std::string trace_of(const ir::Schedule& schedule,
                                   const ir::Timeline& timeline,
                                   const traces::TraceInfo& info = {},
                                   const std::vector<traces::CounterSeries>& counters = {});

/// `text` with the first `from` replaced. Fails the test when there is none.
[[nodiscard]] std::string edited(std::string text, const std::string& from, const std::string& to);

/// Each as "where: message [code]", a line each.
[[nodiscard]] std::string joined(const std::vector<ir::Diagnostic>& diagnostics);

}  // namespace xpipe::tests
