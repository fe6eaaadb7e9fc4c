#include "simulator/fluid_replay.h"

#include <algorithm>
#include <utility>

#include "ir/task.h"

namespace xpipe::simulator {

using ir::index_of;
using ir::LaneId;
using ir::Nanos;
using ir::TaskId;
using std::size_t;
using std::uint32_t;

namespace {

/// As in simulator/lane_replay.h: the end of a step that is not over holds who waits for it.
constexpr Nanos kNobody = -1;
constexpr uint32_t kNoLane = 0xffffffffU;

}  // namespace

FluidReplay::FluidReplay(const Program& program, const CostTable& costs, ReplayState& state)
    : program_(program),
      costs_(costs),
      state_(state),
      sharing_(costs.fluid->sharing),
      channels_(costs.fluid->channels),
      lanes_(program.lanes().size()) {
  const ir::Schedule& schedule = program.schedule();
  state.ends_.assign(program.steps().size(), kNobody);
  state.ends_[kStart] = 0;
  state.starts_.assign(program.steps().size(), 0);
  state.work_left_.clear();
  transfers_.assign(schedule.devices, 0);
  compute_lane_.assign(schedule.devices, kNoLane);
  device_changed_.assign(schedule.devices, false);
  has_started_.assign(schedule.mini_batches, false);
  for (uint32_t l = 0; l < lanes_.size(); ++l) {
    const ir::Lane& lane = schedule.lanes[l];
    const bool has_channels = !costs.channels_of(l).empty();
    lanes_[l].next = program.lanes()[l].begin;
    lanes_[l].end = program.lanes()[l].end;
    lanes_[l].sends = lane.kind == ir::LaneKind::Send;
    lanes_[l].shares = has_channels && costs.fluid->shares;
    lanes_[l].contends = has_channels && !costs.fluid->shares;
    if (lane.kind == ir::LaneKind::Compute) {
      compute_lane_[index_of(lane.device)] = l;
    }
    runnable_.push_back(l);
  }
}

bool FluidReplay::run() {
  settle();
  while (!alarms_.empty()) {
    now_ = alarms_.top().time;
    while (!alarms_.empty() && alarms_.top().time == now_) {
      const Alarm alarm = alarms_.top();
      alarms_.pop();
      Lane& lane = lanes_[alarm.lane];
      if (lane.alarm != alarm.number) {
        continue;
      }
      if (lane.doing == Doing::Running) {
        finish(alarm.lane);
      }
      lane.doing = Doing::Nothing;
      runnable_.push_back(alarm.lane);
    }
    settle();
  }
  return std::ranges::all_of(lanes_, [](const Lane& lane) { return lane.next == lane.end; });
}

/// All that happens at this instant, then the speeds from here on.
void FluidReplay::settle() {
  do {
    while (!runnable_.empty()) {
      const uint32_t lane = runnable_.back();
      runnable_.pop_back();
      advance(lane);
    }
  } while (grant_channels());
  update_speeds();
}

void FluidReplay::advance(uint32_t l) {
  Lane& lane = lanes_[l];
  while (lane.doing == Doing::Nothing && lane.next != lane.end) {
    Nanos arrival = 0;
    if (!is_ready(l, arrival)) {
      return;
    }
    if (arrival > now_) {
      lane.doing = Doing::Waiting;
      set_alarm(l, arrival);
    } else if (lane.contends) {
      lane.doing = Doing::Asking;
      channels_.request(LaneId{l}, task_of(l), now_);
      const auto channels = channels_.channels_of(LaneId{l});
      touched_.insert(touched_.end(), channels.begin(), channels.end());
    } else {
      start(l);
    }
  }
}

/// Whether all that the lane's next step waits for is over; else the lane is woken when it is.
bool FluidReplay::is_ready(uint32_t l, Nanos& arrival) {
  const Step& step = program_.steps()[lanes_[l].next];
  if ((step.after & kSeveral) == 0) {
    return wait_for(l, step.after, step.delay, arrival);
  }
  for (uint32_t w = step.after & ~kSeveral; w != kLastWait; w = program_.waits()[w].next) {
    if (!wait_for(l, program_.waits()[w].after, program_.waits()[w].delay, arrival)) {
      return false;
    }
  }
  return true;
}

bool FluidReplay::wait_for(uint32_t l, uint32_t step, uint32_t delay, Nanos& arrival) {
  const Nanos end = state_.ends_[step];
  if (end < 0) {
    lanes_[l].next_blocked = std::exchange(state_.ends_[step], -2 - Nanos{l});
    return false;
  }
  arrival = std::max(arrival, end + costs_.delays[delay]);
  return true;
}

void FluidReplay::start(uint32_t l) {
  Lane& lane = lanes_[l];
  note_mini_batch(l);
  state_.starts_[lane.next] = now_;
  const Nanos duration = costs_.durations[program_.steps()[lane.next].cost];
  lane.doing = Doing::Running;
  if (duration == 0) {
    finish(l);
    lane.doing = Doing::Nothing;
    return;
  }
  lane.progress = scheduler::Progress(now_, duration);
  set_alarm(l, lane.progress.end());
  if (lane.sends) {
    transfer_starts_or_ends(l, +1);
  } else {
    note_device(index_of(program_.schedule().lanes[l].device));
  }
}

void FluidReplay::finish(uint32_t l) {
  Lane& lane = lanes_[l];
  if (lane.sends && state_.starts_[lane.next] < now_) {
    transfer_starts_or_ends(l, -1);
  }
  if (lane.contends) {
    channels_.release(LaneId{l});
    const auto channels = channels_.channels_of(LaneId{l});
    touched_.insert(touched_.end(), channels.begin(), channels.end());
  }
  wake_who_waits_for(lane.next);
  ++lane.next;
}

void FluidReplay::wake_who_waits_for(uint32_t step) {
  for (Nanos waiting = std::exchange(state_.ends_[step], now_); waiting != kNobody;) {
    const auto lane = static_cast<uint32_t>(-2 - waiting);
    runnable_.push_back(lane);
    waiting = lanes_[lane].next_blocked;
  }
}

void FluidReplay::set_alarm(uint32_t l, Nanos time) {
  alarms_.push({.time = time, .lane = l, .number = ++lanes_[l].alarm});
}

/// Whether anything was granted.
bool FluidReplay::grant_channels() {
  std::vector<uint32_t> granted;
  for (const scheduler::ChannelId channel : std::exchange(touched_, {})) {
    if (const auto send = channels_.grant(channel)) {
      granted.push_back(index_of(program_.schedule().task(*send).lane));
    }
  }
  for (const uint32_t l : granted) {
    start(l);
    if (lanes_[l].doing == Doing::Nothing) {
      runnable_.push_back(l);
    }
  }
  return !granted.empty();
}

/// Compute on it may go at another speed from now on.
void FluidReplay::note_device(uint32_t device) {
  if (!device_changed_[device]) {
    device_changed_[device] = true;
    changed_devices_.push_back(device);
  }
}

/// A transfer that takes time; its devices and those it shares with will notice.
void FluidReplay::transfer_starts_or_ends(uint32_t l, int change) {
  const ir::Lane& lane = program_.schedule().lanes[l];
  for (const ir::DeviceId id : {lane.device, lane.peer}) {
    const uint32_t device = index_of(id);
    transfers_[device] += static_cast<uint32_t>(change);
    note_device(device);
  }
  if (lanes_[l].shares) {
    sharing_changed_ = true;
    const auto place = std::ranges::lower_bound(sharing_lanes_, LaneId{l});
    if (change > 0) {
      sharing_lanes_.insert(place, LaneId{l});
    } else {
      sharing_lanes_.erase(place);
    }
  }
}

void FluidReplay::update_speeds() {
  if (std::exchange(sharing_changed_, false)) {
    const std::vector<scheduler::Speed> speeds = sharing_.speeds(sharing_lanes_);
    for (size_t i = 0; i < speeds.size(); ++i) {
      set_speed(index_of(sharing_lanes_[i]), speeds[i]);
    }
  }
  for (const uint32_t device : changed_devices_) {
    device_changed_[device] = false;
    const uint32_t l = compute_lane_[device];
    if (l != kNoLane && lanes_[l].doing == Doing::Running) {
      set_speed(
          l, transfers_[device] > 0 ? costs_.fluid->overlap_speed[device] : scheduler::kFullSpeed);
    }
  }
  changed_devices_.clear();
}

void FluidReplay::set_speed(uint32_t l, scheduler::Speed speed) {
  Lane& lane = lanes_[l];
  if (lane.progress.speed() != speed) {
    lane.progress.set_speed(now_, speed);
    set_alarm(l, lane.progress.end());
  }
}

/// The first task of a mini-batch starts: how much of what runs is left (simulator/border_state.h).
void FluidReplay::note_mini_batch(uint32_t l) {
  const ir::Schedule& schedule = program_.schedule();
  const auto mini_batch =
      index_of(ir::mini_batch_of(schedule.task(task_of(l)), schedule.micro_batches));
  if (has_started_[mini_batch]) {
    return;
  }
  has_started_[mini_batch] = true;
  for (uint32_t other = 0; other < lanes_.size(); ++other) {
    if (lanes_[other].doing == Doing::Running) {
      state_.work_left_.push_back({.mini_batch = mini_batch,
                                   .task = task_of(other),
                                   .left = lanes_[other].progress.left(now_)});
    }
  }
}

}  // namespace xpipe::simulator
