#include "executor/virtual_backend.h"

#include <utility>

namespace xpipe::executor {

using ir::index_of;

VirtualBackend::VirtualBackend(scheduler::CostModel costs) : costs_(std::move(costs)) {}

ir::Status VirtualBackend::begin(const ir::Schedule& schedule) {
  if (ir::Status priced = scheduler::check_costs(costs_, schedule); !priced.ok()) {
    return priced;
  }
  state_.begin_run();
  clock_.emplace(schedule, costs_);
  enqueued_.assign(schedule.tasks.size(), false);
  timeline_ = {};
  return {};
}

void VirtualBackend::wait(ir::LaneId lane, Event event) {
  XPIPE_CHECK(enqueued_[index_of(event.task)])
      << "task " << index_of(event.task) << " is waited for before it was enqueued";
  clock_->wait(lane, event.task);
}

Event VirtualBackend::enqueue(ir::LaneId lane, ir::TaskId task, Work work) {
  enqueued_[index_of(task)] = true;
  if (state_.stopping()) {
    return {task};
  }
  if (const ir::Status status = work(task); status.ok()) {
    clock_->add(lane, task);
  } else {
    state_.fail(status.error());
  }
  return {task};
}

ir::Status VirtualBackend::synchronize() {
  timeline_ = std::move(*clock_).resolve();
  clock_.reset();
  return state_.status();
}

void VirtualBackend::stop(ir::Error reason) {
  state_.stop(std::move(reason));
}

}  // namespace xpipe::executor
