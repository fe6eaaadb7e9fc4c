#include "executor/virtual_clock.h"

#include <algorithm>
#include <utility>

#include "ir/status.h"

namespace xpipe::executor {

using ir::index_of;
using ir::LaneId;
using ir::Nanos;
using ir::TaskId;

VirtualClock::VirtualClock(const ir::Schedule& schedule, const scheduler::CostModel& costs)
    : schedule_(schedule),
      costs_(costs),
      channels_(costs, schedule),
      lanes_(schedule.lanes.size()),
      free_at_(channels_.size(), 0),
      held_by_(channels_.size()),
      spans_(schedule.tasks.size()),
      ended_(schedule.tasks.size(), false),
      blocked_by_(schedule.tasks.size()) {
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (!channels_.channels_of(LaneId{lane}).empty()) {
      contending_.push_back(lane);
    }
  }
}

void VirtualClock::wait(LaneId lane, TaskId event) {
  lanes_[index_of(lane)].waits.push_back(event);
}

void VirtualClock::add(LaneId lane, TaskId task) {
  Lane& l = lanes_[index_of(lane)];
  l.items.push_back({task, static_cast<std::uint32_t>(l.waits.size())});
}

ir::Timeline VirtualClock::resolve() && {
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    runnable_.push_back(lane);
  }
  do {
    advance_all_runnable();
  } while (grant_links());

  ir::Timeline timeline{.measured = false, .spans = {}};
  for (const Lane& lane : lanes_) {
    XPIPE_CHECK(lane.head == lane.items.size())
        << "task " << index_of(lane.items[lane.head].task) << " waits for ever";
    for (const Item& item : lane.items) {
      timeline.spans.push_back(spans_[index_of(item.task)]);
    }
  }
  std::ranges::sort(timeline.spans, {}, &ir::Span::task);
  return timeline;
}

void VirtualClock::advance_all_runnable() {
  while (!runnable_.empty()) {
    const std::uint32_t lane = runnable_.back();
    runnable_.pop_back();
    advance(lane);
  }
}

/// Runs the lane until it is done, waits for a task that has no end yet, or asks for its link.
void VirtualClock::advance(std::uint32_t lane) {
  Lane& l = lanes_[lane];
  while (l.head < l.items.size() && !l.asks_for_link) {
    const Item& item = l.items[l.head];
    l.ready_at = std::max(l.ready_at, l.free_at);
    for (; l.next_wait < item.waits_end; ++l.next_wait) {
      const TaskId event = l.waits[l.next_wait];
      if (!ended(event)) {
        l.next_blocked = blocked_by_[index_of(event)];
        blocked_by_[index_of(event)] = lane;
        return;
      }
      const Nanos delay =
          scheduler::edge_delay(costs_, schedule_, {.from = event, .to = item.task});
      l.ready_at = std::max(l.ready_at, spans_[index_of(event)].end + delay);
    }
    if (channels_.channels_of(LaneId{lane}).empty()) {
      occupy(lane, l.ready_at);
    } else {
      channels_.request(LaneId{lane}, item.task, l.ready_at);
      l.asks_for_link = true;
    }
  }
}

/// The head of `lane` has its lane (and link) from `start` on, for its duration.
void VirtualClock::occupy(std::uint32_t lane, Nanos start) {
  Lane& l = lanes_[lane];
  const TaskId task = l.items[l.head].task;
  const Nanos end = start + scheduler::duration(costs_, schedule_, schedule_.task(task));
  spans_[index_of(task)] = {.task = task, .start = start, .end = end};
  ended_[index_of(task)] = true;
  l.free_at = end;
  l.ready_at = end;
  l.asks_for_link = false;
  ++l.head;
  for (auto blocked = blocked_by_[index_of(task)]; blocked;
       blocked = std::exchange(lanes_[*blocked].next_blocked, std::nullopt)) {
    runnable_.push_back(*blocked);
  }
}

/// When `lane` starts the transfer it asks for, as far as is known now; nothing when it asks for
/// none or another must go before it.
std::optional<Nanos> VirtualClock::next_grant(std::uint32_t lane) const {
  if (!lanes_[lane].asks_for_link || !channels_.is_next(LaneId{lane})) {
    return std::nullopt;
  }
  Nanos start = lanes_[lane].ready_at;
  for (const scheduler::ChannelId channel : channels_.channels_of(LaneId{lane})) {
    start = std::max(start, free_at_[index_of(channel)]);
  }
  return start;
}

/// `lane` has its channels from `start` on; who had them last gives them back.
void VirtualClock::grant(std::uint32_t lane, Nanos start) {
  const auto channels = channels_.channels_of(LaneId{lane});
  for (const scheduler::ChannelId channel : channels) {
    const std::optional<std::uint32_t> holder = held_by_[index_of(channel)];
    if (!holder) {
      continue;
    }
    channels_.release(LaneId{*holder});
    for (const scheduler::ChannelId held : channels_.channels_of(LaneId{*holder})) {
      held_by_[index_of(held)].reset();
    }
  }
  const std::optional<TaskId> send = channels_.grant(channels.front());
  XPIPE_CHECK(send.has_value() && index_of(schedule_.task(*send).lane) == lane)
      << "lane " << lane << " is next and its link is free";
  occupy(lane, start);
  for (const scheduler::ChannelId channel : channels) {
    held_by_[index_of(channel)] = lane;
    free_at_[index_of(channel)] = lanes_[lane].free_at;
  }
  runnable_.push_back(lane);
}

/// Every lane is as far as it can go by itself. The earliest next transfer of all is safe to grant:
/// what is not known yet follows from some transfer and cannot be ready before it. Those that start
/// at the same instant are granted together, before anything that follows from them.
/// Returns whether there was one.
bool VirtualClock::grant_links() {
  std::optional<Nanos> earliest;
  std::vector<std::uint32_t> next;
  for (const std::uint32_t lane : contending_) {
    const std::optional<Nanos> at = next_grant(lane);
    if (at && (!earliest || *at < *earliest)) {
      earliest = at;
      next.clear();
    }
    if (at && at == earliest) {
      next.push_back(lane);
    }
  }
  for (const std::uint32_t lane : next) {
    grant(lane, *earliest);
  }
  return earliest.has_value();
}

}  // namespace xpipe::executor
