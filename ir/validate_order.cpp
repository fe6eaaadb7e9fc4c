#include <cstdint>
#include <limits>
#include <vector>

#include "ir/validate_levels.h"

namespace xpipe::ir::validation {

namespace {

constexpr std::uint32_t kNoColumn = std::numeric_limits<std::uint32_t>::max();

}  // namespace

Order::Order(const Index& index, const std::vector<TaskId>& topological)
    : index_(index),
      several_lanes_(index.schedule.stages.size(), false),
      columns_(index.schedule.lanes.size(), kNoColumn) {
  const Schedule& schedule = index.schedule;
  constexpr LaneId kNoLane{std::numeric_limits<std::uint32_t>::max()};
  std::vector<LaneId> lane_of_stage(schedule.stages.size(), kNoLane);
  const auto give_column = [this](LaneId lane) {
    std::uint32_t& column = columns_[index_of(lane)];
    if (column == kNoColumn) {
      column = static_cast<std::uint32_t>(column_count_++);
    }
  };
  for (const Task& task : schedule.tasks) {
    if (schedule.lane(task.lane).kind != LaneKind::Compute) {
      continue;
    }
    LaneId& lane = lane_of_stage[index_of(task.stage)];
    if (lane != kNoLane && lane != task.lane) {
      several_lanes_[index_of(task.stage)] = true;
      give_column(lane);
      give_column(task.lane);
    }
    lane = task.lane;
  }
  if (column_count_ == 0) {
    return;
  }
  clocks_.assign(schedule.tasks.size() * column_count_, 0);
  for (const TaskId task : topological) {
    std::uint32_t* clock = clocks_.data() + index_of(task) * column_count_;
    const auto merge = [this, clock](TaskId before) {
      const std::uint32_t* other = clocks_.data() + index_of(before) * column_count_;
      for (std::size_t c = 0; c < column_count_; ++c) {
        clock[c] = other[c] > clock[c] ? other[c] : clock[c];
      }
    };
    for (const TaskId* p = index.begin_in(task); p != index.end_in(task); ++p) {
      merge(*p);
    }
    const LaneId lane = schedule.task(task).lane;
    const std::uint32_t position = index.position[index_of(task)];
    if (position > 0) {
      merge(schedule.lane(lane).order[position - 1]);
    }
    if (columns_[index_of(lane)] != kNoColumn) {
      clock[columns_[index_of(lane)]] = position + 1;
    }
  }
}

bool Order::before(TaskId a, TaskId b) const {
  const LaneId lane_a = index_.schedule.task(a).lane;
  if (lane_a == index_.schedule.task(b).lane) {
    return index_.position[index_of(a)] < index_.position[index_of(b)];
  }
  const std::uint32_t column = columns_[index_of(lane_a)];
  XPIPE_CHECK(column != kNoColumn) << "no clock for lane " << index_of(lane_a);
  return clocks_[index_of(b) * column_count_ + column] > index_.position[index_of(a)];
}

Grid::Grid(const Schedule& schedule)
    : micro_batches(std::uint64_t{schedule.micro_batches} * schedule.mini_batches) {
  for (std::vector<TaskId>& cells : cells_) {
    cells.assign(schedule.stages.size() * micro_batches, kNone);
  }
  for (std::uint32_t i = 0; i < schedule.tasks.size(); ++i) {
    const Task& task = schedule.tasks[i];
    const TaskKind kind = task.kind();
    trains |= kind == TaskKind::Backward || kind == TaskKind::BackwardInput ||
              kind == TaskKind::BackwardWeight || kind == TaskKind::Step;
    if (kind > TaskKind::Recompute) {
      continue;
    }
    TaskId& cell = cells_[static_cast<std::size_t>(kind)]
                         [index_of(task.stage) * micro_batches + index_of(*micro_batch_of(task))];
    if (cell == kNone) {
      cell = TaskId{i};
    } else {
      twins.emplace_back(TaskId{i}, cell);
    }
  }
}

std::optional<TaskId> Grid::gradient(StageId stage, std::uint64_t j) const {
  const std::optional<TaskId> whole = find(TaskKind::Backward, stage, j);
  return whole ? whole : find(TaskKind::BackwardInput, stage, j);
}

}  // namespace xpipe::ir::validation
