#include "app/what_if.h"

#include <algorithm>
#include <utility>

#include "app/what_if_changes.h"

#include "ir/timeline.h"

namespace xpipe::app {

namespace {

using ir::Nanos;

/// Of the mini-batches replayed.
double share_of_path(const Change& change, const WhatIfBase& base) {
  const ir::Schedule& schedule = base.schedule;
  Nanos sum = 0;
  const std::vector<ir::Span>& path = base.path.tasks;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const ir::Task& task = schedule.task(path[i].task);
    const ir::Lane& lane = schedule.lane(task.lane);
    sum += change.on_path({task, lane, false}, path[i].end - path[i].start);
    if (i + 1 < path.size() && path[i + 1].start > path[i].end) {
      sum += change.on_path({task, lane, true}, path[i + 1].start - path[i].end);
    }
  }
  const Nanos whole = path.empty() ? 0 : path.back().end;
  return whole > 0 ? static_cast<double>(sum) / static_cast<double>(whole) : 0.0;
}

double speed_up(double before, double after) {
  return after > 0.0 ? before / after - 1.0 : 0.0;
}

std::optional<double> steady_speed_up(const simulator::SteadyState& before,
                                      const simulator::SteadyState& after) {
  if (!before.found() || !after.found()) {
    return std::nullopt;
  }
  // Both sides over the same number of mini-batches, so that equal times give 0 exactly.
  return speed_up(static_cast<double>(before.period_ns) * after.period,
                  static_cast<double>(after.period_ns) * before.period);
}

}  // namespace

std::string_view target_name(WhatIfTarget target) {
  switch (target) {
    case WhatIfTarget::Device:
      return "device";
    case WhatIfTarget::Stage:
      return "stage";
    case WhatIfTarget::Link:
      return "link";
    case WhatIfTarget::SharedLink:
      return "shared-link";
    case WhatIfTarget::Bandwidth:
      return "bandwidth";
    case WhatIfTarget::Latency:
      return "latency";
    case WhatIfTarget::MemoryBandwidth:
      return "memory-bandwidth";
    case WhatIfTarget::TaskOverhead:
      return "task-overhead";
  }
  return "unknown";
}

ir::Result<WhatIf> what_if(CompiledRun& run, const WhatIfBase& base, double percent) {
  WhatIf answer{.percent = percent, .rows = {}};
  for (const Change& change : changes_of(base, 1.0 + percent / 100.0)) {
    const ir::Result<scheduler::CostModel> costs = costs_with(change, base);
    if (!costs.ok()) {
      return costs.error();
    }
    ir::Result<simulator::LongRun> replayed = run.replay(costs.value(), base.extrapolate);
    if (!replayed.ok()) {
      return replayed.error();
    }
    WhatIfRow row;
    row.target = change.target;
    row.name = change.name;
    const simulator::LongRun& changed = replayed.value();
    const Nanos makespan = ir::makespan(changed.base.timeline);
    row.makespan = changed.longer.has_value()
                       ? changed.extrapolated(makespan, ir::makespan(changed.longer->timeline))
                       : makespan;
    row.makespan_speed_up =
        speed_up(static_cast<double>(base.makespan), static_cast<double>(row.makespan));
    row.steady_speed_up = steady_speed_up(base.steady, replayed.value().steady);
    row.steady = std::move(replayed).value().steady;
    row.path_share = share_of_path(change, base);
    answer.rows.push_back(std::move(row));
  }
  std::ranges::stable_sort(answer.rows, std::greater<>(), [](const WhatIfRow& row) {
    return std::pair(row.steady_speed_up.value_or(row.makespan_speed_up), row.makespan_speed_up);
  });
  return answer;
}

}  // namespace xpipe::app
