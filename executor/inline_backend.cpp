#include "executor/inline_backend.h"

#include <algorithm>
#include <utility>

#include "executor/stall.h"

namespace xpipe::executor {

using ir::index_of;

ir::Status InlineBackend::begin(const ir::Schedule& schedule) {
  state_.begin_run();
  schedule_ = &schedule;
  waits_.assign(schedule.lanes.size(), {});
  owners_.clear();
  {
    const std::lock_guard lock(mutex_);
    external_done_.assign(schedule.tasks.size(), false);
  }
  spans_.clear();
  spans_.reserve(schedule.tasks.size());
  enqueued_.assign(schedule.tasks.size(), false);
  origin_ = std::chrono::steady_clock::now();
  return {};
}

ir::Status InlineBackend::expect(Event event, const std::string& owner) {
  owners_.resize(schedule_->devices);
  owners_[index_of(schedule_->lane(schedule_->task(event.task).lane).device)] = owner;
  return {};
}

void InlineBackend::complete(Event event) {
  const std::lock_guard lock(mutex_);
  external_done_[index_of(event.task)] = true;
  ++moves_;
  changed_.notify_all();
}

void InlineBackend::wait(ir::LaneId lane, Event event) {
  const ir::DeviceId device = schedule_->lane(schedule_->task(event.task).lane).device;
  if (!owners_.empty() && !owners_[index_of(device)].empty()) {
    waits_[index_of(lane)].push_back(event.task);  // waited for when it is known what waits
    return;
  }
  XPIPE_CHECK(enqueued_[index_of(event.task)])
      << "task " << index_of(event.task) << " is waited for before it was enqueued";
}

void InlineBackend::await(ir::TaskId event, ir::LaneId lane, ir::TaskId task) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const std::uint64_t moves = moves_;
    const bool moved = changed_.wait_for(lock, time_out_, [this, event, moves] {
      return external_done_[index_of(event)] || state_.stopping() || moves_ != moves;
    });
    if (external_done_[index_of(event)] || state_.stopping()) {
      return;
    }
    if (!moved) {
      std::vector<std::optional<LaneHead>> heads(schedule_->lanes.size());
      heads[index_of(lane)] = LaneHead{.task = task, .running = false, .waits_for = event};
      state_.fail(describe_stall(*schedule_, heads, time_out_.count(), owners_));
      return;
    }
  }
}

Event InlineBackend::enqueue(ir::LaneId lane, ir::TaskId task, Work work) {
  enqueued_[index_of(task)] = true;
  for (const ir::TaskId event : std::exchange(waits_[index_of(lane)], {})) {
    await(event, lane, task);
  }
  if (state_.stopping()) {
    return {task};
  }
  const auto now = [this]() -> ir::Nanos {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now() - origin_).count();
  };
  const ir::Nanos start = now();
  const ir::Status status = work(task);
  if (status.ok()) {
    spans_.push_back({.task = task, .start = start, .end = now()});
  } else {
    state_.fail(status.error());
  }
  return {task};
}

ir::Status InlineBackend::synchronize() {
  return state_.status();
}

void InlineBackend::stop(ir::Error reason) {
  state_.stop(std::move(reason));
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

ir::Timeline InlineBackend::timeline() const {
  ir::Timeline timeline{.measured = true, .spans = spans_};
  std::ranges::sort(timeline.spans, {}, &ir::Span::task);
  return timeline;
}

}  // namespace xpipe::executor
