#include "tests/executor/recorder.h"

#include <doctest/doctest.h>

#include "ir/text.h"

namespace xpipe::tests {

using ir::index_of;
using ir::TaskId;

Recorder::Recorder(const ir::Schedule& schedule)
    : schedule_(schedule),
      predecessors_(schedule.tasks.size()),
      records_(schedule.tasks.size()),
      values_(schedule.tasks.size(), 0) {
  for (const ir::Lane& lane : schedule.lanes) {
    for (std::size_t i = 1; i < lane.order.size(); ++i) {
      predecessors_[index_of(lane.order[i])].push_back(lane.order[i - 1]);
    }
  }
  for (const ir::Edge& edge : schedule.edges) {
    predecessors_[index_of(edge.to)].push_back(edge.from);
  }
}

executor::HandlerTable Recorder::handlers(Extra extra) {
  executor::HandlerTable table;
  table.fill([this, extra = std::move(extra)](const ir::Schedule&, TaskId task) {
    return run(task, extra);
  });
  return table;
}

ir::Status Recorder::run(TaskId task, const Extra& extra) {
  struct Inside {
    std::atomic<int>& count;

    explicit Inside(std::atomic<int>& c) : count(c) { ++count; }

    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

    ~Inside() { --count; }
  };

  const Inside inside(inside_);
  Record& record = records_[index_of(task)];
  ++record.runs;
  record.start = ++count_;
  record.thread = std::this_thread::get_id();
  std::uint64_t value = index_of(task) + 1;
  for (const TaskId before : predecessors_[index_of(task)]) {
    value = (value ^ values_[index_of(before)]) * 0x9e3779b97f4a7c15U;
  }
  ir::Status status = extra ? extra(task) : ir::Status();
  if (status.ok()) {
    values_[index_of(task)] = value;
    record.end = ++count_;
  }
  return status;
}

void Recorder::check_order(const Record& before, const Record& after, TaskId task) const {
  if (before.end == 0 || before.end > after.start) {
    FAIL_CHECK(ir::to_text(schedule_.task(task)), " started before a predecessor had ended");
  }
}

void Recorder::check_stopped() const {
  CHECK(inside_ == 0);
  for (std::uint32_t i = 0; i < records_.size(); ++i) {
    if (records_[i].runs > 1) {
      FAIL_CHECK(ir::to_text(schedule_.tasks[i]), " ran ", records_[i].runs.load(), " times");
    }
    if (records_[i].runs > 0) {
      for (const TaskId before : predecessors_[i]) {
        check_order(records_[index_of(before)], records_[i], TaskId{i});
      }
    }
  }
}

void Recorder::check_complete() const {
  check_stopped();
  for (std::uint32_t i = 0; i < records_.size(); ++i) {
    if (records_[i].end == 0) {
      FAIL_CHECK(ir::to_text(schedule_.tasks[i]), " has not run");
    }
  }
}

bool Recorder::started(TaskId task) const {
  return records_[index_of(task)].start != 0;
}

bool Recorder::ended(TaskId task) const {
  return records_[index_of(task)].end != 0;
}

std::size_t Recorder::started_count() const {
  std::size_t count = 0;
  for (const Record& record : records_) {
    count += record.start != 0 ? 1 : 0;
  }
  return count;
}

bool Recorder::ended_before(TaskId a, TaskId b) const {
  return ended(a) && started(b) && records_[index_of(a)].end < records_[index_of(b)].start;
}

bool Recorder::started_before(TaskId a, TaskId b) const {
  return started(a) && started(b) && records_[index_of(a)].start < records_[index_of(b)].start;
}

std::thread::id Recorder::thread_of(TaskId task) const {
  return records_[index_of(task)].thread;
}

}  // namespace xpipe::tests
