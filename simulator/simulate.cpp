#include "simulator/simulate.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "ir/status.h"
#include "scheduler/link_model.h"
#include "scheduler/ready_tracker.h"
#include "simulator/event_queue.h"

namespace xpipe::simulator {

namespace {

using ir::index_of;
using ir::Nanos;
using ir::TaskId;

class Replay {
 public:
  Replay(const ir::Schedule& schedule, const scheduler::CostModel& costs)
      : schedule_(schedule),
        costs_(costs),
        graph_(schedule),
        tracker_(graph_),
        channels_(costs, schedule),
        earliest_(schedule.tasks.size(), 0) {
    timeline_.spans.resize(schedule.tasks.size());
    for (std::size_t i = 0; i < schedule.tasks.size(); ++i) {
      timeline_.spans[i].task = TaskId(static_cast<std::uint32_t>(i));
    }
  }

  ir::Timeline run() && {
    for (const TaskId task : tracker_.initially_ready()) {
      queue_.push(0, EventKind::Start, task);
    }
    while (!queue_.empty()) {
      const Event event = queue_.pop();
      switch (event.kind) {
        case EventKind::Start:
          start(event.task);
          break;
        case EventKind::Finish:
          finish(event.task);
          break;
      }
      if (queue_.empty() || queue_.next_time() > queue_.now()) {
        grant_channels();
      }
    }
    XPIPE_CHECK(tracker_.all_done()) << "an event was lost: " << tracker_.done_count() << " of "
                                     << schedule_.tasks.size() << " tasks ended";
    return std::move(timeline_);
  }

 private:
  [[nodiscard]] ir::LaneId lane_of(TaskId task) const { return schedule_.task(task).lane; }

  void touch_channels_of(ir::LaneId lane) {
    const auto channels = channels_.channels_of(lane);
    touched_.insert(touched_.end(), channels.begin(), channels.end());
  }

  void start(TaskId task) {
    if (channels_.channels_of(lane_of(task)).empty()) {
      occupy(task);
    } else {
      channels_.request(lane_of(task), task, queue_.now());
      touch_channels_of(lane_of(task));
    }
  }

  /// From now on, for its duration, `task` has its lane.
  void occupy(TaskId task) {
    ir::Span& span = timeline_.spans[index_of(task)];
    span.start = queue_.now();
    span.end = span.start + scheduler::duration(costs_, schedule_, schedule_.task(task));
    queue_.push(span.end, EventKind::Finish, task);
  }

  void finish(TaskId task) {
    if (!channels_.channels_of(lane_of(task)).empty()) {
      channels_.release(lane_of(task));
      touch_channels_of(lane_of(task));
    }
    for (const TaskId next : graph_.successors(task)) {
      const Nanos arrival =
          queue_.now() + scheduler::edge_delay(costs_, schedule_, {.from = task, .to = next});
      earliest_[index_of(next)] = std::max(earliest_[index_of(next)], arrival);
    }
    tracker_.done(task, [this](TaskId next) {
      queue_.push(earliest_[index_of(next)], EventKind::Start, next);
    });
  }

  /// Nothing else happens at this instant: what stands in line and finds its channels free, goes.
  void grant_channels() {
    for (const scheduler::ChannelId channel : touched_) {
      if (const auto send = channels_.grant(channel)) {
        occupy(*send);
      }
    }
    touched_.clear();
  }

  const ir::Schedule& schedule_;
  const scheduler::CostModel& costs_;
  scheduler::TaskGraph graph_;
  scheduler::ReadyTracker tracker_;
  scheduler::LinkChannels channels_;
  EventQueue queue_;
  std::vector<scheduler::ChannelId> touched_;  ///< asked for or set free at this instant
  std::vector<Nanos> earliest_;                ///< by TaskId: the last arrival so far
  ir::Timeline timeline_;
};

}  // namespace

ir::Timeline simulate(const ir::Schedule& schedule, const scheduler::CostModel& costs) {
  return Replay(schedule, costs).run();
}

}  // namespace xpipe::simulator
