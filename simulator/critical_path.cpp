#include "simulator/critical_path.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "ir/status.h"
#include "scheduler/link_model.h"
#include "scheduler/ready_tracker.h"

namespace xpipe::simulator {

namespace {

using ir::index_of;
using ir::Nanos;
using ir::TaskId;

class PathWalk {
 public:
  PathWalk(const ir::Schedule& schedule,
           const ir::Timeline& timeline,
           const scheduler::CostModel& costs)
      : schedule_(schedule),
        timeline_(timeline),
        costs_(costs),
        graph_(schedule),
        channels_(costs, schedule) {
    for (const ir::Span& span : timeline.spans) {
      const auto channel = channels_.channel_of(schedule.task(span.task).lane);
      if (channel.has_value() && span.end > span.start) {
        transfer_ending_[{*channel, span.end}] = span.task;
      }
    }
  }

  CriticalPath from(TaskId last) && {
    CriticalPath path;
    for (std::optional<TaskId> task = last; task.has_value(); task = cause_of(*task)) {
      const ir::Span& span = timeline_.spans[index_of(*task)];
      if (!path.tasks.empty()) {
        path.latency += path.tasks.back().start - span.end;
      }
      path.tasks.push_back(span);
      path.by_kind[static_cast<std::size_t>(schedule_.task(*task).kind())] += span.end - span.start;
    }
    std::ranges::reverse(path.tasks);
    return path;
  }

 private:
  /// What `task` waited for; nullopt at the start of the segment.
  [[nodiscard]] std::optional<TaskId> cause_of(TaskId task) const {
    const Nanos start = timeline_.spans[index_of(task)].start;
    for (const TaskId before : graph_.predecessors(task)) {
      const Nanos delay = scheduler::edge_delay(costs_, schedule_, {.from = before, .to = task});
      if (timeline_.spans[index_of(before)].end + delay == start) {
        return before;
      }
    }
    if (start == 0) {
      return std::nullopt;
    }
    const auto channel = channels_.channel_of(schedule_.task(task).lane);
    XPIPE_CHECK(channel.has_value()) << "task " << index_of(task) << " waited for nothing";
    const auto holder = transfer_ending_.find({*channel, start});
    XPIPE_CHECK(holder != transfer_ending_.end()) << "task " << index_of(task) << " at " << start;
    return holder->second;
  }

  const ir::Schedule& schedule_;
  const ir::Timeline& timeline_;
  const scheduler::CostModel& costs_;
  scheduler::TaskGraph graph_;
  scheduler::LinkChannels channels_;
  /// On shared channels, transfers that take time; of one channel no two end together.
  std::map<std::pair<scheduler::ChannelId, Nanos>, TaskId> transfer_ending_;
};

}  // namespace

CriticalPath critical_path(const ir::Schedule& schedule,
                           const ir::Timeline& timeline,
                           const scheduler::CostModel& costs) {
  if (timeline.spans.empty()) {
    return {};
  }
  const auto last = std::ranges::max_element(timeline.spans, {}, &ir::Span::end);
  return PathWalk(schedule, timeline, costs).from(last->task);
}

}  // namespace xpipe::simulator
