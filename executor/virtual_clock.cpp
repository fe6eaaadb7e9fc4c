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
      sharing_(costs, schedule),
      lanes_(schedule.lanes.size()),
      spans_(schedule.tasks.size()),
      ended_(schedule.tasks.size(), false) {}

void VirtualClock::wait(LaneId lane, TaskId event) {
  lanes_[index_of(lane)].waits.push_back(event);
}

void VirtualClock::add(LaneId lane, TaskId task) {
  Lane& l = lanes_[index_of(lane)];
  l.items.push_back({task, static_cast<std::uint32_t>(l.waits.size())});
}

ir::Timeline VirtualClock::resolve() && {
  for (std::optional<Nanos> instant = 0; instant; instant = next_instant()) {
    now_ = *instant;
    do {
      while (step_lanes()) {
      }
    } while (grant_channels());
    set_speeds();
  }

  ir::Timeline timeline{.measured = false, .spans = {}};
  for (const Lane& lane : lanes_) {
    XPIPE_CHECK(lane.head == lane.items.size())
        << "task " << index_of(head_of(lane).task) << " waits for ever";
    for (const Item& item : lane.items) {
      timeline.spans.push_back(spans_[index_of(item.task)]);
    }
  }
  std::ranges::sort(timeline.spans, {}, &ir::Span::task);
  return timeline;
}

/// Looks at every lane once; whether anything happened.
bool VirtualClock::step_lanes() {
  bool happened = false;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    while (look_at(lane)) {
      happened = true;
    }
  }
  return happened;
}

/// Whether the head of the lane ended, started or asked for its channels now.
bool VirtualClock::look_at(std::uint32_t lane) {
  Lane& l = lanes_[lane];
  if (l.at) {
    if (l.at->end() > now_) {
      return false;
    }
    end_head(lane);
    return true;
  }
  if (l.head == l.items.size() || l.asks) {
    return false;
  }
  const Item& item = head_of(l);
  for (; l.next_wait < item.waits_end; ++l.next_wait) {
    const TaskId event = l.waits[l.next_wait];
    if (!ended_[index_of(event)]) {
      return false;
    }
    const Nanos delay = scheduler::edge_delay(costs_, schedule_, {.from = event, .to = item.task});
    l.arrives_at = std::max(l.arrives_at, spans_[index_of(event)].end + delay);
  }
  if (l.arrives_at > now_) {
    return false;
  }
  if (stands_in_line(lane)) {
    channels_.request(LaneId{lane}, item.task, now_);
    l.asks = true;
  } else {
    start(lane);
  }
  return true;
}

bool VirtualClock::stands_in_line(std::uint32_t lane) const {
  return costs_.sharing == ir::Sharing::FirstCome && !channels_.channels_of(LaneId{lane}).empty();
}

void VirtualClock::start(std::uint32_t lane) {
  Lane& l = lanes_[lane];
  const TaskId task = head_of(l).task;
  spans_[index_of(task)] = {.task = task, .start = now_, .end = now_};
  l.asks = false;
  l.at.emplace(now_, scheduler::duration(costs_, schedule_, schedule_.task(task)));
}

void VirtualClock::end_head(std::uint32_t lane) {
  Lane& l = lanes_[lane];
  const TaskId task = head_of(l).task;
  spans_[index_of(task)].end = now_;
  ended_[index_of(task)] = true;
  l.at.reset();
  ++l.head;
  if (stands_in_line(lane)) {
    channels_.release(LaneId{lane});
  }
}

/// Nothing else happens at this instant: who is first in line on free channels, goes. Whether there
/// was one.
bool VirtualClock::grant_channels() {
  std::vector<std::uint32_t> granted;
  for (std::uint32_t channel = 0; channel < channels_.size(); ++channel) {
    if (const auto send = channels_.grant(scheduler::ChannelId{channel})) {
      granted.push_back(index_of(schedule_.task(*send).lane));
    }
  }
  for (const std::uint32_t lane : granted) {
    start(lane);
  }
  return !granted.empty();
}

/// How fast everything that runs goes on from here.
void VirtualClock::set_speeds() {
  std::vector<LaneId> sharing;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    Lane& l = lanes_[lane];
    if (!l.at) {
      continue;
    }
    if (schedule_.lanes[lane].kind == ir::LaneKind::Compute) {
      l.at->set_speed(now_, compute_speed(schedule_.lanes[lane]));
    } else if (sharing_.shares(LaneId{lane}) && !stands_in_line(lane)) {
      sharing.push_back(LaneId{lane});
    }
  }
  const std::vector<scheduler::Speed> speeds = sharing_.speeds(sharing);
  for (std::size_t i = 0; i < sharing.size(); ++i) {
    lanes_[index_of(sharing[i])].at->set_speed(now_, speeds[i]);
  }
}

scheduler::Speed VirtualClock::compute_speed(const ir::Lane& lane) const {
  const std::size_t device = index_of(lane.device);
  if (device >= costs_.overlap_slowdown.size()) {
    return scheduler::kFullSpeed;
  }
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    const ir::Lane& other = schedule_.lanes[l];
    if (lanes_[l].at && other.kind == ir::LaneKind::Send &&
        (other.device == lane.device || other.peer == lane.device)) {
      return scheduler::slowed(costs_.overlap_slowdown[device]);
    }
  }
  return scheduler::kFullSpeed;
}

/// The next moment at which something ends or arrives; nothing when all is done.
std::optional<Nanos> VirtualClock::next_instant() const {
  std::optional<Nanos> next;
  for (const Lane& lane : lanes_) {
    std::optional<Nanos> at;
    if (lane.at) {
      at = lane.at->end();
    } else if (lane.arrives_at > now_) {
      at = lane.arrives_at;
    }
    if (at && (!next || *at < *next)) {
      next = at;
    }
  }
  return next;
}

}  // namespace xpipe::executor
