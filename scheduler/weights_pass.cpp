#include "scheduler/weights_pass.h"

#include <algorithm>
#include <string>
#include <utility>

namespace xpipe::scheduler {

namespace {

using ir::ComputeOp;
using ir::Error;
using ir::index_of;
using ir::MicroBatch;
using ir::MiniBatch;
using ir::OpKind;
using ir::SlotId;
using ir::Task;
using ir::Version;
using ir::WantedWeights;

constexpr std::uint32_t kNever = 0;

/// What a slot is for; a purpose keeps to the slot that it had last.
enum class Purpose : std::uint8_t { ForwardCopy, BackwardCopy, Stash };

/// A copy of a stage's weights that still has readers.
struct LiveCopy {
  Purpose purpose = Purpose::Stash;
  WantedWeights weights;  ///< for a stash only `version` counts
  SlotId slot{};
};

/// The positions (from 1) in the device's order where weights are read for the
/// last time.
class LastReads {
 public:
  explicit LastReads(std::uint32_t mini_batches)
      : of_version_(mini_batches + 1, kNever),
        of_copy_{std::vector(mini_batches, kNever), std::vector(mini_batches, kNever)} {}

  [[nodiscard]] bool in_range(const WantedWeights& want) const {
    return want.version < of_version_.size() &&
           (want.distance == 0 || index_of(want.copy_mini_batch) < of_copy_[0].size());
  }

  /// Requires: in_range(want).
  std::uint32_t& of(const WantedWeights& want) {
    if (want.distance == 0) {
      return of_version_[want.version];
    }
    return of_copy_[static_cast<std::size_t>(want.copy_pass)][index_of(want.copy_mini_batch)];
  }

 private:
  std::vector<std::uint32_t> of_version_;
  std::vector<std::uint32_t> of_copy_[2];  ///< by Pass
};

/// The slots of one stage while its device's order is walked.
class StageSlots {
 public:
  explicit StageSlots(std::uint32_t mini_batches) : last_reads(mini_batches) {}

  LastReads last_reads;
  Version master = 0;

  [[nodiscard]] LiveCopy* find(const WantedWeights& want) {
    for (LiveCopy& copy : live_) {
      const bool same = want.distance == 0
                            ? copy.purpose == Purpose::Stash && copy.weights.version == want.version
                            : copy.purpose != Purpose::Stash &&
                                  copy.weights.copy_pass == want.copy_pass &&
                                  copy.weights.copy_mini_batch == want.copy_mini_batch;
      if (same) {
        return &copy;
      }
    }
    return nullptr;
  }

  SlotId occupy(Purpose purpose, const WantedWeights& weights) {
    SlotId& preferred = preferred_[static_cast<std::size_t>(purpose)];
    if (preferred == ir::kMasterSlot || !is_free(preferred)) {
      std::uint16_t slot = 1;
      while (!is_free(SlotId{slot})) {
        ++slot;
      }
      preferred = SlotId{slot};
    }
    count_ = std::max<std::uint16_t>(count_, static_cast<std::uint16_t>(index_of(preferred) + 1));
    live_.push_back({purpose, weights, preferred});
    return preferred;
  }

  void vacate(const LiveCopy* copy) { live_.erase(live_.begin() + (copy - live_.data())); }

  /// Storages ever used, master included.
  [[nodiscard]] std::uint16_t count() const { return count_; }

 private:
  [[nodiscard]] bool is_free(SlotId slot) const {
    return std::none_of(live_.begin(), live_.end(),
                        [slot](const LiveCopy& copy) { return copy.slot == slot; });
  }

  std::vector<LiveCopy> live_;
  SlotId preferred_[3] = {ir::kMasterSlot, ir::kMasterSlot, ir::kMasterSlot};
  std::uint16_t count_ = 1;
};

std::string describe(const ComputeOp& op) {
  static constexpr const char* kTokens[] = {"F", "B", "I", "W", "RECOMPUTE", "STEP"};
  return std::to_string(index_of(op.stage)) + kTokens[static_cast<std::size_t>(op.kind)] +
         std::to_string(op.index);
}

ir::Payload payload_of(const ComputeOp& op, const ir::WeightRead& read) {
  const MicroBatch micro_batch{op.index};
  switch (op.kind) {
    case OpKind::Forward:
      return ir::Forward{micro_batch, read};
    case OpKind::Backward:
      return ir::Backward{micro_batch, read};
    case OpKind::BackwardInput:
      return ir::BackwardInput{micro_batch, read};
    case OpKind::BackwardWeight:
      return ir::BackwardWeight{micro_batch, read};
    case OpKind::Recompute:
      return ir::Recompute{micro_batch, read};
    case OpKind::Step:
      return ir::Step{MiniBatch{op.index}, read.version};
  }
  return {};
}

/// Walks one device's order and emits its tasks.
class DeviceWalk {
 public:
  DeviceWalk(const ir::ComputePlan& plan,
             std::vector<StageSlots>& stages,
             std::vector<Task>& tasks,
             Error& error)
      : plan_(plan), stages_(stages), tasks_(tasks), error_(error) {}

  void run(const std::vector<ComputeOp>& order) {
    if (!find_last_reads(order)) {
      return;
    }
    // Room for a stash and a release with every step of PipeDream; what stays untouched is no
    // memory.
    tasks_.reserve(2 * order.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      if (order[i].kind == OpKind::Step) {
        step(order[i], i + 1);
      } else {
        compute(order[i], i + 1);
      }
    }
  }

 private:
  StageSlots& stage_of(const ComputeOp& op) { return stages_[index_of(op.stage)]; }

  void fault(const ComputeOp& op, const std::string& message) {
    error_.diagnostics.push_back({"weights-unavailable", describe(op), message});
  }

  void emit(const ComputeOp& op, const ir::Payload& payload) {
    tasks_.push_back({.payload = payload, .lane = {}, .stage = op.stage});
  }

  /// The mini-batch an op belongs to.
  [[nodiscard]] MiniBatch mini_batch_of(const ComputeOp& op) const {
    return MiniBatch{op.kind == OpKind::Step ? op.index : op.index / plan_.micro_batches};
  }

  bool find_last_reads(const std::vector<ComputeOp>& order) {
    bool ok = true;
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      const ComputeOp& op = order[i];
      if (op.kind == OpKind::Step) {
        continue;
      }
      LastReads& last_reads = stage_of(op).last_reads;
      if (!last_reads.in_range(op.weights)) {
        fault(op, "wants version " + std::to_string(op.weights.version) + " for mini-batch " +
                      std::to_string(index_of(op.weights.copy_mini_batch)) + ", but there are " +
                      std::to_string(plan_.mini_batches) + " mini-batches");
        ok = false;
        continue;
      }
      last_reads.of(op.weights) = i + 1;
    }
    return ok;
  }

  void compute(const ComputeOp& op, std::uint32_t position) {
    StageSlots& stage = stage_of(op);
    const WantedWeights& want = op.weights;
    const bool last = stage.last_reads.of(want) == position;
    if (want.distance == 0 && want.version == stage.master) {
      emit(op, payload_of(op, {want.version, ir::kMasterSlot, 0}));
      return;
    }
    LiveCopy* copy = stage.find(want);
    if (copy == nullptr && want.distance > 0 && want.version == stage.master) {
      const Purpose purpose =
          want.copy_pass == ir::Pass::Forward ? Purpose::ForwardCopy : Purpose::BackwardCopy;
      const SlotId slot = stage.occupy(purpose, want);
      emit(op, ir::Predict{.mini_batch = want.copy_mini_batch,
                           .version = want.version,
                           .from = ir::kMasterSlot,
                           .into = slot,
                           .distance = want.distance,
                           .pass = want.copy_pass});
      copy = stage.find(want);
    }
    if (copy == nullptr || (want.distance > 0 && copy->weights != want)) {
      fault(op, "wants version " + std::to_string(want.version) + "+" +
                    std::to_string(want.distance) + ", but the master is at version " +
                    std::to_string(stage.master) +
                    (copy == nullptr ? " and no such copy is held"
                                     : " and the copy it shares aims elsewhere"));
      return;
    }
    emit(op, payload_of(op, {want.version, copy->slot, want.distance}));
    if (last) {
      if (copy->purpose == Purpose::Stash) {
        emit(op, ir::Release{mini_batch_of(op), copy->slot});
      }
      stage.vacate(copy);
    }
  }

  void step(const ComputeOp& op, std::uint32_t position) {
    StageSlots& stage = stage_of(op);
    if (op.weights.version != stage.master) {
      fault(op, "steps from version " + std::to_string(op.weights.version) +
                    ", but the master is at version " + std::to_string(stage.master));
    }
    const WantedWeights kept{.version = stage.master};
    if (stage.last_reads.in_range(kept) && stage.last_reads.of(kept) > position) {
      emit(op, ir::Stash{.mini_batch = MiniBatch{op.index},
                         .version = stage.master,
                         .from = ir::kMasterSlot,
                         .into = stage.occupy(Purpose::Stash, kept)});
    }
    emit(op, payload_of(op, {.version = stage.master}));
    ++stage.master;
  }

  const ir::ComputePlan& plan_;
  std::vector<StageSlots>& stages_;
  std::vector<Task>& tasks_;
  Error& error_;
};

}  // namespace

ir::Result<ComputeLanes> assign_weights(const ir::ComputePlan& plan) {
  Error error{ir::ErrorKind::Illegal, {}};
  std::vector<StageSlots> stages(plan.placement.size(), StageSlots(plan.mini_batches));
  ComputeLanes lanes;
  lanes.devices.resize(plan.devices.size());
  for (std::size_t d = 0; d < plan.devices.size(); ++d) {
    DeviceWalk(plan, stages, lanes.devices[d], error).run(plan.devices[d]);
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  for (const StageSlots& stage : stages) {
    lanes.slots.push_back(stage.count());
  }
  return lanes;
}

}  // namespace xpipe::scheduler
