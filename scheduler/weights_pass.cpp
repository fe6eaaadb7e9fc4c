#include "scheduler/weights_pass.h"

#include <algorithm>
#include <string>
#include <utility>

namespace xpipe::scheduler {

namespace {

using ir::ComputeOp;
using ir::Distance;
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

/// Weights of one stage that operations want: those of a version, or a predicted copy.
struct Copy {
  std::uint32_t last_read = kNever;  ///< position (from 1) in the device's order
  Version version = 0;               ///< while it is held
  Distance distance = 0;             ///< while it is held
  SlotId slot = ir::kMasterSlot;  ///< the slot that holds it beside the master; else the master's

  [[nodiscard]] bool is_held() const { return slot != ir::kMasterSlot; }
};

/// All that are ever wanted of one stage, found by index: versions, and copies by pass and
/// mini-batch.
class Copies {
 public:
  explicit Copies(std::uint32_t mini_batches)
      : of_version_(mini_batches + 1),
        predicted_{std::vector<Copy>(mini_batches), std::vector<Copy>(mini_batches)} {}

  [[nodiscard]] bool in_range(const WantedWeights& want) const {
    return want.version < of_version_.size() &&
           (want.distance == 0 || index_of(want.copy_mini_batch) < predicted_[0].size());
  }

  /// Requires: in_range(want).
  Copy& of(const WantedWeights& want) {
    if (want.distance == 0) {
      return of_version_[want.version];
    }
    return predicted_[static_cast<std::size_t>(want.copy_pass)][index_of(want.copy_mini_batch)];
  }

 private:
  std::vector<Copy> of_version_;
  std::vector<Copy> predicted_[2];  ///< by Pass
};

/// The slots of one stage while its device's order is walked.
class StageSlots {
 public:
  explicit StageSlots(std::uint32_t mini_batches) : copies(mini_batches) {}

  Copies copies;
  Version master = 0;

  /// From now on a slot holds `copy`: the one of its purpose, or else the first that is free.
  SlotId occupy(Purpose purpose, Copy& copy, const WantedWeights& weights) {
    SlotId& preferred = preferred_[static_cast<std::size_t>(purpose)];
    if (preferred == ir::kMasterSlot || is_taken_[index_of(preferred)]) {
      while (first_free_ < is_taken_.size() && is_taken_[first_free_]) {
        ++first_free_;
      }
      preferred = SlotId{first_free_};
    }
    if (index_of(preferred) == is_taken_.size()) {
      is_taken_.push_back(false);
    }
    is_taken_[index_of(preferred)] = true;
    copy.slot = preferred;
    copy.version = weights.version;
    copy.distance = weights.distance;
    return preferred;
  }

  void vacate(Copy& copy) {
    is_taken_[index_of(copy.slot)] = false;
    first_free_ = std::min(first_free_, index_of(copy.slot));
    copy.slot = ir::kMasterSlot;
  }

  /// Storages ever used, master included.
  [[nodiscard]] std::uint16_t count() const { return static_cast<std::uint16_t>(is_taken_.size()); }

 private:
  std::vector<bool> is_taken_ = {true};  ///< by SlotId
  std::uint16_t first_free_ = 1;         ///< no slot before it is free
  SlotId preferred_[3] = {ir::kMasterSlot, ir::kMasterSlot, ir::kMasterSlot};
};

std::string describe(const ComputeOp& op) {
  static constexpr const char* kTokens[] = {"F",    "B",         "I",       "W",       "RECOMPUTE",
                                            "STEP", "ALLREDUCE", "PREDICT", "SUMTIED", "CLIP"};
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
    case OpKind::AllReduce:
      return ir::AllReduce{MiniBatch{op.index}};
    case OpKind::SumTied:
      return ir::SumTied{MiniBatch{op.index}, op.peer};
    case OpKind::ClipNorm:
      return ir::ClipNorm{MiniBatch{op.index}};
    case OpKind::Predict:
      break;  // make_copy()
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
      switch (order[i].kind) {
        case OpKind::Step:
          step(order[i], i + 1);
          break;
        case OpKind::AllReduce:
        case OpKind::SumTied:
        case OpKind::ClipNorm:
          emit(order[i], payload_of(order[i], {}));
          break;
        case OpKind::Predict:
          predict(order[i], i + 1);
          break;
        case OpKind::Forward:
        case OpKind::Backward:
        case OpKind::BackwardInput:
        case OpKind::BackwardWeight:
        case OpKind::Recompute:
          compute(order[i], i + 1);
          break;
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
    return MiniBatch{op.kind >= OpKind::Step ? op.index : op.index / plan_.micro_batches};
  }

  bool find_last_reads(const std::vector<ComputeOp>& order) {
    bool ok = true;
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      const ComputeOp& op = order[i];
      if (op.kind >= OpKind::Step && op.kind != OpKind::Predict) {
        continue;
      }
      Copies& copies = stage_of(op).copies;
      if (!copies.in_range(op.weights)) {
        fault(op, "wants version " + std::to_string(op.weights.version) + " for mini-batch " +
                      std::to_string(index_of(op.weights.copy_mini_batch)) + ", but there are " +
                      std::to_string(plan_.mini_batches) + " mini-batches");
        ok = false;
        continue;
      }
      if (op.kind != OpKind::Predict) {
        copies.of(op.weights).last_read = i + 1;
      }
    }
    return ok;
  }

  void compute(const ComputeOp& op, std::uint32_t position) {
    StageSlots& stage = stage_of(op);
    const WantedWeights& want = op.weights;
    if (want.distance == 0 && want.version == stage.master) {
      emit(op, payload_of(op, {want.version, ir::kMasterSlot, 0}));
      return;
    }
    Copy& copy = stage.copies.of(want);
    if (!copy.is_held() && want.distance > 0 && want.version == stage.master) {
      make_copy(op, stage, copy);
    }
    if (!copy.is_held() || copy.version != want.version || copy.distance != want.distance) {
      fault(op, "wants version " + std::to_string(want.version) + "+" +
                    std::to_string(want.distance) + ", but the master is at version " +
                    std::to_string(stage.master) +
                    (copy.is_held() ? " and the copy it shares aims elsewhere"
                                    : " and no such copy is held"));
      return;
    }
    emit(op, payload_of(op, {want.version, copy.slot, want.distance}));
    if (copy.last_read == position) {
      if (want.distance == 0) {
        emit(op, ir::Release{mini_batch_of(op), copy.slot});
      }
      stage.vacate(copy);
    }
  }

  /// Requires: the master is at the version to predict from.
  void make_copy(const ComputeOp& op, StageSlots& stage, Copy& copy) {
    const WantedWeights& want = op.weights;
    const Purpose purpose =
        want.copy_pass == ir::Pass::Forward ? Purpose::ForwardCopy : Purpose::BackwardCopy;
    emit(op, ir::Predict{.mini_batch = want.copy_mini_batch,
                         .version = want.version,
                         .from = ir::kMasterSlot,
                         .into = stage.occupy(purpose, copy, want),
                         .distance = want.distance,
                         .pass = want.copy_pass});
  }

  /// Makes the copy that the op names, when it has readers and none has made it.
  void predict(const ComputeOp& op, std::uint32_t position) {
    StageSlots& stage = stage_of(op);
    Copy& copy = stage.copies.of(op.weights);
    if (op.weights.distance == 0 || copy.last_read < position || copy.is_held()) {
      return;
    }
    if (op.weights.version != stage.master) {
      fault(op, "predicts from version " + std::to_string(op.weights.version) +
                    ", but the master is at version " + std::to_string(stage.master));
      return;
    }
    make_copy(op, stage, copy);
  }

  void step(const ComputeOp& op, std::uint32_t position) {
    StageSlots& stage = stage_of(op);
    if (op.weights.version != stage.master) {
      fault(op, "steps from version " + std::to_string(op.weights.version) +
                    ", but the master is at version " + std::to_string(stage.master));
    }
    const WantedWeights kept{.version = stage.master};
    if (stage.copies.in_range(kept) && stage.copies.of(kept).last_read > position) {
      emit(op, ir::Stash{.mini_batch = MiniBatch{op.index},
                         .version = stage.master,
                         .from = ir::kMasterSlot,
                         .into = stage.occupy(Purpose::Stash, stage.copies.of(kept), kept)});
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
  const std::size_t count = plan.placement.size();
  std::vector<std::vector<std::size_t>> stages_on(plan.devices.size());
  for (std::size_t k = 0; k < count; ++k) {
    for (const ir::DeviceId device : plan.placement[k]) {
      stages_on[index_of(device)].push_back(k);
    }
  }
  std::vector<StageSlots> stages(count, StageSlots(0));
  ComputeLanes lanes;
  lanes.devices.resize(plan.devices.size());
  lanes.slots.assign(count, 1);
  for (std::size_t d = 0; d < plan.devices.size(); ++d) {
    for (const std::size_t k : stages_on[d]) {
      stages[k] = StageSlots(plan.mini_batches);
    }
    DeviceWalk(plan, stages, lanes.devices[d], error).run(plan.devices[d]);
    for (const std::size_t k : stages_on[d]) {
      lanes.slots[k] = std::max(lanes.slots[k], stages[k].count());
      stages[k] = StageSlots(0);
    }
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  return lanes;
}

}  // namespace xpipe::scheduler
