#include "simulator/critical_path.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

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
    lanes_of_.resize(channels_.size());
    for (std::uint32_t l = 0; l < schedule.lanes.size(); ++l) {
      for (const auto channel : channels_.channels_of(ir::LaneId{l})) {
        lanes_of_[index_of(channel)].push_back(l);
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
      const ir::Task& on_path = schedule_.task(*task);
      path.by_kind[static_cast<std::size_t>(on_path.kind())] += span.end - span.start;
      path.slowed += span.end - span.start - scheduler::duration(costs_, schedule_, on_path);
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
    return holder_before(task, start);
  }

  /// When `task` could have started but for its link, and its id: its place in line.
  [[nodiscard]] std::pair<Nanos, TaskId> place_of(TaskId task) const {
    Nanos ready = 0;
    for (const TaskId before : graph_.predecessors(task)) {
      const Nanos delay = scheduler::edge_delay(costs_, schedule_, {.from = before, .to = task});
      ready = std::max(ready, timeline_.spans[index_of(before)].end + delay);
    }
    return {ready, task};
  }

  /// The transfer that had one of the channels of `task` until it started: one that took time, else
  /// one that took none and stood before it in line.
  [[nodiscard]] TaskId holder_before(TaskId task, Nanos start) const {
    std::optional<TaskId> instant;
    for (const auto channel : channels_.channels_of(schedule_.task(task).lane)) {
      for (const std::uint32_t lane : lanes_of_[index_of(channel)]) {
        for (const TaskId holder : ending_at(lane, start)) {
          if (timeline_.spans[index_of(holder)].start < start) {
            return holder;
          }
          const bool is_before = place_of(holder) < place_of(task);
          instant =
              is_before && (!instant || place_of(*instant) < place_of(holder)) ? holder : instant;
        }
      }
    }
    XPIPE_CHECK(instant.has_value())
        << "task " << index_of(task) << " at " << start << " waited for nothing";
    return *instant;
  }

  /// The tasks of a lane that end then: ends ascend.
  [[nodiscard]] std::span<const TaskId> ending_at(std::uint32_t lane, Nanos time) const {
    const std::vector<TaskId>& order = schedule_.lanes[lane].order;
    const auto found = std::ranges::equal_range(
        order, time, {}, [this](TaskId id) { return timeline_.spans[index_of(id)].end; });
    return {found.begin(), found.end()};
  }

  const ir::Schedule& schedule_;
  const ir::Timeline& timeline_;
  const scheduler::CostModel& costs_;
  scheduler::TaskGraph graph_;
  scheduler::LinkChannels channels_;
  std::vector<std::vector<std::uint32_t>> lanes_of_;  ///< by ChannelId: who holds it
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
