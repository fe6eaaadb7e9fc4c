#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ir/text.h"
#include "ir/validate_levels.h"

namespace xpipe::ir::validation {

namespace {

enum class SlotState : std::uint8_t { Unwritten, Held, Released };

/// What a slot holds, and who touched it since it was written.
struct Slot {
  SlotState state = SlotState::Unwritten;
  Version version = 0;
  Distance distance = 0;
  std::optional<TaskId> writer;
  std::vector<TaskId> readers;  ///< the last one on each lane; only kept where races can be
};

std::string weights_text(Version version, Distance distance) {
  std::string text = "v" + std::to_string(version);
  if (distance > 0) {
    text += "+" + std::to_string(distance);
  }
  return text;
}

class Replay {
 public:
  Replay(const Index& index, const Order& order, Findings& findings)
      : index_(index),
        schedule_(index.schedule),
        order_(order),
        findings_(findings),
        slots_(index.replicas.size()),
        raced_(index.replicas.size(), false) {
    for (std::vector<Slot>& slots : slots_) {
      slots.resize(1);
      slots[0].state = SlotState::Held;
    }
  }

  void run(TaskId id) {
    const Task& task = schedule_.task(id);
    replica_ = index_.replicas.of(task);
    task_ = id;
    std::visit([this](const auto& payload) { touch(payload); }, task.payload);
  }

  /// Tells what was held back, of replicas without a race.
  void finish() {
    for (Pending& pending : pending_) {
      if (!raced_[index_.replica(pending.task)]) {
        findings_.add(pending.code, pending.task, std::move(pending.message));
      }
    }
  }

 private:
  struct Pending {
    TaskId task{};
    std::string_view code;
    std::string message;
  };

  Slot& slot(SlotId id) {
    std::vector<Slot>& slots = slots_[replica_];
    if (index_of(id) >= slots.size()) {
      slots.resize(std::size_t{index_of(id)} + 1);
    }
    return slots[index_of(id)];
  }

  /// What a slot holds after a race depends on the order chosen here: such faults wait for
  /// finish().
  void fault(std::string_view code, std::string message) {
    if (order_.on_several_lanes(replica_)) {
      pending_.push_back({task_, code, std::move(message)});
    } else {
      findings_.add(code, task_, std::move(message));
    }
  }

  [[nodiscard]] std::string text(TaskId id) const { return to_text(schedule_.task(id)); }

  void race_with(TaskId other, SlotId id) {
    if (!order_.before(other, task_)) {
      raced_[replica_] = true;
      findings_.add("slot-race", task_,
                    "and " + text(other) + " both touch slot " + std::to_string(index_of(id)) +
                        " of stage " + std::to_string(index_of(schedule_.task(task_).stage)) +
                        ", one of them writing, in no order: expected lanes or edges to "
                        "order them");
    }
  }

  void note_read(SlotId id) {
    if (!order_.on_several_lanes(replica_)) {
      return;
    }
    Slot& place = slot(id);
    if (place.writer) {
      race_with(*place.writer, id);
    }
    const LaneId lane = schedule_.task(task_).lane;
    for (TaskId& reader : place.readers) {
      if (schedule_.task(reader).lane == lane) {
        reader = task_;
        return;
      }
    }
    place.readers.push_back(task_);
  }

  void note_write(SlotId id) {
    Slot& place = slot(id);
    if (order_.on_several_lanes(replica_)) {
      if (place.writer) {
        race_with(*place.writer, id);
      }
      for (const TaskId reader : place.readers) {
        race_with(reader, id);
      }
    }
    place.readers.clear();
    place.writer = task_;
  }

  void read(SlotId id, Version version, Distance distance) {
    note_read(id);
    const Slot& place = slot(id);
    if (place.state != SlotState::Held || place.version != version || place.distance != distance) {
      tell_read(place, id, version, distance);
    }
  }

  void tell_read(const Slot& place, SlotId id, Version version, Distance distance) {
    const std::string name = "slot " + std::to_string(index_of(id));
    if (place.state == SlotState::Unwritten) {
      fault("read-unwritten-slot", "reads " + name + ", which nothing has written: expected " +
                                       weights_text(version, distance) + " in it");
    } else if (place.state == SlotState::Released) {
      fault("read-released-slot", "reads " + name + ", which " + text(*place.writer) +
                                      " has released: expected " + weights_text(version, distance) +
                                      " in it");
    } else {
      fault("version-mismatch", "expects " + weights_text(version, distance) + " in " + name +
                                    ", which holds " + weights_text(place.version, place.distance) +
                                    (place.writer ? ", written by " + text(*place.writer)
                                                  : ", the weights at the start"));
    }
  }

  void write(SlotId id, Version version, Distance distance) {
    note_write(id);
    Slot& place = slot(id);
    place.state = SlotState::Held;
    place.version = version;
    place.distance = distance;
  }

  void copy(SlotId from, SlotId into, Version version, Distance distance) {
    if (from != kMasterSlot) {
      fault("copy-from-slot", "reads slot " + std::to_string(index_of(from)) +
                                  ": expected the master weights, slot 0");
    } else {
      read(from, version, 0);
    }
    if (into == kMasterSlot) {
      fault("predict-into-master",
            "writes slot 0: expected another slot, as only steps change the master weights");
    } else {
      write(into, version, distance);
    }
  }

  template <typename Compute>
    requires requires(const Compute& c) { c.weights; }
  void touch(const Compute& compute) {
    read(compute.weights.slot, compute.weights.version, compute.weights.distance);
  }

  void touch(const Predict& predict) {
    if (predict.distance == 0) {
      fault("predict-distance-zero",
            "aims 0 steps ahead: expected at least 1, or a stash (design.md 5)");
    }
    copy(predict.from, predict.into, predict.version, predict.distance);
  }

  void touch(const Stash& stash) { copy(stash.from, stash.into, stash.version, 0); }

  void touch(const Step& step) {
    Slot& master = slot(kMasterSlot);
    if (master.version != step.version) {
      fault("version-mismatch", "steps from v" + std::to_string(step.version) +
                                    ", but slot 0 holds v" + std::to_string(master.version));
    }
    write(kMasterSlot, master.version + 1, 0);
  }

  void touch(const Release& release) {
    if (release.slot == kMasterSlot) {
      fault("release-free-slot", "releases slot 0, the master weights: expected a copy");
      return;
    }
    if (slot(release.slot).state != SlotState::Held) {
      fault("release-free-slot", "releases slot " + std::to_string(index_of(release.slot)) +
                                     ", which holds nothing: expected a copy");
    }
    note_write(release.slot);
    slot(release.slot).state = SlotState::Released;
  }

  void touch(const Send&) {}

  void touch(const Receive&) {}

  void touch(const AllReduce&) {}

  void touch(const SumTied&) {}

  void touch(const ClipNorm&) {}

  const Index& index_;
  const Schedule& schedule_;
  const Order& order_;
  Findings& findings_;
  std::vector<std::vector<Slot>> slots_;  ///< by replica, then SlotId
  std::vector<bool> raced_;               ///< by replica
  std::vector<Pending> pending_;
  std::size_t replica_ = 0;  ///< of the task that is replayed
  TaskId task_{};
};

}  // namespace

void check_slots(const Index& index, const Order& order, Findings& findings) {
  const Schedule& schedule = index.schedule;
  if (order.is_by_lane()) {
    // The order among stages shows only in which faults are told one by one, when they are many.
    Findings by_lane(schedule);
    Replay replay(index, order, by_lane);
    for (const Lane& lane : schedule.lanes) {
      if (lane.kind == LaneKind::Compute) {
        std::for_each(lane.order.begin(), lane.order.end(), [&](TaskId id) { replay.run(id); });
      }
    }
    if (by_lane.empty()) {
      return;
    }
  }
  Replay replay(index, order, findings);
  for (const TaskId id : run_what_can_run(index)) {
    replay.run(id);
  }
  replay.finish();
}

void check_resources(const Index& index, Findings& findings) {
  const Schedule& schedule = index.schedule;
  std::vector<std::vector<bool>> used;
  for (const StageInfo& stage : schedule.stages) {
    used.emplace_back(stage.slots, false);
    used.back()[0] = true;
  }
  const auto touch = [&](TaskId id, SlotId slot) {
    std::vector<bool>& slots = used[index_of(schedule.task(id).stage)];
    if (index_of(slot) < slots.size()) {
      slots[index_of(slot)] = true;
    } else {
      findings.add("slots-declared", id,
                   "uses slot " + std::to_string(index_of(slot)) + ": expected one of 0 to " +
                       std::to_string(slots.size() - 1) + ", or more slots declared for stage " +
                       std::to_string(index_of(schedule.task(id).stage)));
    }
  };
  for (std::uint32_t i = 0; i < schedule.tasks.size(); ++i) {
    const TaskId id{i};
    if (index.kind[i] == TaskKind::Send || index.kind[i] == TaskKind::Receive) {
      continue;
    }
    std::visit(
        [&]<typename T>(const T& payload) {
          if constexpr (requires { payload.weights; }) {
            touch(id, payload.weights.slot);
          } else if constexpr (requires { payload.into; }) {
            touch(id, payload.into);
          } else if constexpr (requires { payload.slot; }) {
            touch(id, payload.slot);
          }
        },
        schedule.tasks[i].payload);
  }
  for (std::size_t k = 0; k < used.size(); ++k) {
    for (std::size_t s = 0; s < used[k].size(); ++s) {
      if (!used[k][s]) {
        findings.add("slots-unused", "stage " + std::to_string(k),
                     "declares " + std::to_string(used[k].size()) +
                         " slots and never touches slot " + std::to_string(s) +
                         ": expected no more slots than are used");
      }
    }
  }
}

}  // namespace xpipe::ir::validation
