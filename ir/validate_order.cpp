#include <cstdint>
#include <limits>
#include <vector>

#include "ir/validate_levels.h"

namespace xpipe::ir::validation {

namespace {

constexpr std::uint32_t kNoColumn = std::numeric_limits<std::uint32_t>::max();

}  // namespace

Order::Order(const Index& index)
    : index_(index),
      several_lanes_(index.replicas.size(), false),
      columns_(index.schedule.lanes.size(), kNoColumn) {
  const Schedule& schedule = index.schedule;
  constexpr LaneId kNoLane{std::numeric_limits<std::uint32_t>::max()};
  std::vector<LaneId> lane_of(index.replicas.size(), kNoLane);
  const auto give_column = [this](LaneId lane) {
    std::uint32_t& column = columns_[index_of(lane)];
    if (column == kNoColumn) {
      column = static_cast<std::uint32_t>(column_count_++);
    }
  };
  for (std::uint32_t l = 0; l < schedule.lanes.size(); ++l) {
    if (schedule.lanes[l].kind != LaneKind::Compute) {
      continue;
    }
    for (const TaskId id : schedule.lanes[l].order) {
      const std::size_t replica = index.replica(id);
      LaneId& lane = lane_of[replica];
      if (lane != kNoLane && lane != LaneId{l}) {
        several_lanes_[replica] = true;
        give_column(lane);
        give_column(LaneId{l});
      }
      lane = LaneId{l};
    }
  }
  if (column_count_ == 0) {
    return;
  }
  clocks_.assign(schedule.tasks.size() * column_count_, 0);
  for (const TaskId task : run_what_can_run(index)) {
    std::uint32_t* clock = clocks_.data() + index_of(task) * column_count_;
    const auto merge = [this, clock](TaskId before) {
      const std::uint32_t* other = clocks_.data() + index_of(before) * column_count_;
      for (std::size_t c = 0; c < column_count_; ++c) {
        clock[c] = other[c] > clock[c] ? other[c] : clock[c];
      }
    };
    for (const TaskId source : index.in(task)) {
      merge(source);
    }
    const auto [lane, position] = index.place[index_of(task)];
    if (position > 0) {
      merge(schedule.lane(lane).order[position - 1]);
    }
    if (columns_[index_of(lane)] != kNoColumn) {
      clock[columns_[index_of(lane)]] = position + 1;
    }
  }
}

bool Order::before_across_lanes(TaskId a, TaskId b) const {
  const auto [lane, position] = index_.place[index_of(a)];
  const std::uint32_t column = columns_[index_of(lane)];
  XPIPE_CHECK(column != kNoColumn) << "no clock for lane " << index_of(lane);
  return clocks_[index_of(b) * column_count_ + column] > position;
}

Grid::Grid(const Index& index)
    : micro_batches(std::uint64_t{index.schedule.micro_batches} * index.schedule.mini_batches) {
  const Schedule& schedule = index.schedule;
  for (std::uint32_t i = 0; i < schedule.tasks.size(); ++i) {
    const TaskKind kind = index.kind[i];
    trains |= kind == TaskKind::Backward || kind == TaskKind::BackwardInput ||
              kind == TaskKind::BackwardWeight || kind == TaskKind::Step;
    if (kind > TaskKind::Recompute) {
      continue;
    }
    std::vector<TaskId>& cells = cells_[static_cast<std::size_t>(kind)];
    if (cells.empty()) {
      cells.assign(schedule.stages.size() * micro_batches, kNone);
    }
    const Task& task = schedule.tasks[i];
    TaskId& cell = cells[index_of(task.stage) * micro_batches + index_of(*micro_batch_of(task))];
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
