// The replicas of a schedule's stages in a row, those of stage 0 first: whatever is kept for each
// stage and replica (weights, slots, versions, steps) is kept by these numbers. Without replication
// the number of a stage's only replica is the stage's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"

namespace xpipe::ir {

/// Immutable; `schedule` must outlive it, with its lanes and stages as they are.
class Replicas {
 public:
  /// Requires: each stage has a device, and tasks stand on devices of their stages (validate()).
  explicit Replicas(const Schedule& schedule) : schedule_(&schedule) {
    begin_.reserve(schedule.stages.size() + 1);
    std::size_t next = 0;
    for (std::size_t k = 0; k < schedule.stages.size(); ++k) {
      begin_.push_back(next);
      next += schedule.stages[k].devices.size();
      stages_.insert(stages_.end(), schedule.stages[k].devices.size(),
                     StageId{static_cast<std::uint16_t>(k)});
    }
    begin_.push_back(next);
  }

  /// Of all stages together.
  [[nodiscard]] std::size_t size() const { return stages_.size(); }

  /// The numbers of `stage`: from begin(stage) to below end(stage).
  [[nodiscard]] std::size_t begin(StageId stage) const { return begin_[index_of(stage)]; }

  [[nodiscard]] std::size_t end(StageId stage) const { return begin_[index_of(stage) + 1]; }

  [[nodiscard]] StageId stage(std::size_t replica) const { return stages_[replica]; }

  [[nodiscard]] DeviceId device(std::size_t replica) const {
    const StageId stage = stages_[replica];
    return schedule_->stage(stage).devices[replica - begin(stage)];
  }

  /// The replica that a task of a compute lane is of. Of a message: its own end's.
  [[nodiscard]] std::size_t of(const Task& task) const {
    std::size_t replica = begin(task.stage);
    const std::size_t last = end(task.stage) - 1;
    if (replica < last) {
      const DeviceId device = schedule_->lane(task.lane).device;
      while (replica < last && this->device(replica) != device) {
        ++replica;
      }
    }
    return replica;
  }

 private:
  const Schedule* schedule_;
  std::vector<std::size_t> begin_;  ///< by StageId, and the end
  std::vector<StageId> stages_;     ///< by replica
};

}  // namespace xpipe::ir
