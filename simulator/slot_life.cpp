#include "simulator/slot_life.h"

#include <cstddef>
#include <optional>
#include <variant>

#include "ir/replicas.h"
#include "ir/task.h"

namespace xpipe::simulator {

namespace {

using ir::index_of;

/// Visits every slot that a task uses.
class SlotReplay {
 public:
  explicit SlotReplay(const ir::Schedule& schedule) : replicas_(schedule) {
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      current_.emplace_back(schedule.stage(replicas_.stage(r)).slots);
    }
  }

  void apply(ir::TaskId id, const ir::Task& task) {
    const std::size_t replica = replicas_.of(task);
    if (const ir::WeightRead* read = ir::weights_read(task)) {
      use(id, replica, read->slot);
    } else if (const auto* predict = std::get_if<ir::Predict>(&task.payload)) {
      use(id, replica, predict->from);
      write(id, replica, predict->into, true);
    } else if (const auto* stash = std::get_if<ir::Stash>(&task.payload)) {
      use(id, replica, stash->from);
      write(id, replica, stash->into, false);
    } else if (const auto* release = std::get_if<ir::Release>(&task.payload)) {
      use(id, replica, release->slot);
      current_[replica][index_of(release->slot)].reset();
    }
  }

  std::vector<SlotLife> take() && { return std::move(lives_); }

 private:
  void use(ir::TaskId id, std::size_t replica, ir::SlotId slot) {
    if (const auto life = current_[replica][index_of(slot)]) {
      lives_[*life].last_use = id;
    }
  }

  void write(ir::TaskId id, std::size_t replica, ir::SlotId slot, bool is_prediction) {
    current_[replica][index_of(slot)] = lives_.size();
    lives_.push_back({replicas_.stage(replica), replica, slot, id, id, is_prediction});
  }

  ir::Replicas replicas_;
  std::vector<SlotLife> lives_;
  std::vector<std::vector<std::optional<std::size_t>>> current_;  ///< by replica, by slot
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
