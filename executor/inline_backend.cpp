#include "executor/inline_backend.h"

#include <algorithm>
#include <utility>

namespace xpipe::executor {

using ir::index_of;

ir::Status InlineBackend::begin(const ir::Schedule& schedule) {
  state_.begin_run();
  spans_.clear();
  spans_.reserve(schedule.tasks.size());
  enqueued_.assign(schedule.tasks.size(), false);
  origin_ = std::chrono::steady_clock::now();
  return {};
}

void InlineBackend::wait(ir::LaneId /*lane*/, Event event) {
  XPIPE_CHECK(enqueued_[index_of(event.task)])
      << "task " << index_of(event.task) << " is waited for before it was enqueued";
}

Event InlineBackend::enqueue(ir::LaneId /*lane*/, ir::TaskId task, Work work) {
  enqueued_[index_of(task)] = true;
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
}

ir::Timeline InlineBackend::timeline() const {
  ir::Timeline timeline{.measured = true, .spans = spans_};
  std::ranges::sort(timeline.spans, {}, &ir::Span::task);
  return timeline;
}

}  // namespace xpipe::executor
