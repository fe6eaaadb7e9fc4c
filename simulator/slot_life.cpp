#include "simulator/slot_life.h"

#include <cstddef>
#include <optional>
#include <variant>

#include "ir/task.h"

namespace xpipe::simulator {

namespace {

using ir::index_of;

/// Visits every slot that a task uses.
class SlotReplay {
 public:
  explicit SlotReplay(const ir::Schedule& schedule) {
    for (const ir::StageInfo& stage : schedule.stages) {
      current_.emplace_back(stage.slots);
    }
  }

  void apply(ir::TaskId id, const ir::Task& task) {
    if (const ir::WeightRead* read = ir::weights_read(task)) {
      use(id, task.stage, read->slot);
    } else if (const auto* predict = std::get_if<ir::Predict>(&task.payload)) {
      use(id, task.stage, predict->from);
      write(id, task.stage, predict->into, true);
    } else if (const auto* stash = std::get_if<ir::Stash>(&task.payload)) {
      use(id, task.stage, stash->from);
      write(id, task.stage, stash->into, false);
    } else if (const auto* release = std::get_if<ir::Release>(&task.payload)) {
      use(id, task.stage, release->slot);
      current_[index_of(task.stage)][index_of(release->slot)].reset();
    }
  }

  std::vector<SlotLife> take() && { return std::move(lives_); }

 private:
  void use(ir::TaskId id, ir::StageId stage, ir::SlotId slot) {
    if (const auto life = current_[index_of(stage)][index_of(slot)]) {
      lives_[*life].last_use = id;
    }
  }

  void write(ir::TaskId id, ir::StageId stage, ir::SlotId slot, bool is_prediction) {
    current_[index_of(stage)][index_of(slot)] = lives_.size();
    lives_.push_back({stage, slot, id, id, is_prediction});
  }

  std::vector<SlotLife> lives_;
  std::vector<std::vector<std::optional<std::size_t>>> current_;  ///< by stage, by slot
};

}  // namespace

std::vector<SlotLife> slot_lives(const ir::Schedule& schedule, std::span<const ir::TaskId> order) {
  SlotReplay replay(schedule);
  for (const ir::TaskId id : order) {
    replay.apply(id, schedule.task(id));
  }
  return std::move(replay).take();
}

}  // namespace xpipe::simulator
