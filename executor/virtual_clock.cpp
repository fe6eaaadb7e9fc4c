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
      links_(channels_.size()),
      spans_(schedule.tasks.size()),
      ended_(schedule.tasks.size(), false),
      blocked_by_(schedule.tasks.size()) {
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (const auto channel = channels_.channel_of(LaneId{lane})) {
      links_[index_of(*channel)].lanes.push_back(lane);
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
    if (const auto channel = channels_.channel_of(LaneId{lane})) {
      channels_.request(*channel, item.task, l.ready_at);
      l.asks_for_link = true;
    } else {
      occupy(lane, l.ready_at);
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

/// When the link starts its next transfer, as far as is known now; nothing when nobody asks.
std::optional<Nanos> VirtualClock::next_grant(const Link& link) const {
  std::optional<Nanos> at;
  for (const std::uint32_t lane : link.lanes) {
    if (lanes_[lane].asks_for_link) {
      const Nanos start = std::max(lanes_[lane].ready_at, link.free_at);
      at = std::min(at.value_or(start), start);
    }
  }
  return at;
}

/// Every lane is as far as it can go by itself. The earliest next transfer of all links is safe to
/// grant: what is not known yet follows from some transfer and cannot be ready before it. Links
/// that start at the same instant are granted together, before anything that follows from them.
/// Returns whether there was one.
bool VirtualClock::grant_links() {
  std::optional<Nanos> earliest;
  for (const Link& link : links_) {
    if (const auto at = next_grant(link)) {
      earliest = std::min(earliest.value_or(*at), *at);
    }
  }
  for (std::uint32_t i = 0; earliest && i < links_.size(); ++i) {
    Link& link = links_[i];
    if (next_grant(link) != earliest) {
      continue;
    }
    const scheduler::ChannelId channel{i};
    if (std::exchange(link.held, true)) {
      channels_.release(channel);
    }
    const std::optional<TaskId> send = channels_.grant(channel);
    XPIPE_CHECK(send.has_value()) << "link " << i << " is asked for and free";
    const std::uint32_t lane = index_of(schedule_.task(*send).lane);
    occupy(lane, *earliest);
    link.free_at = lanes_[lane].free_at;
    runnable_.push_back(lane);
  }
  return earliest.has_value();
}

}  // namespace xpipe::executor
