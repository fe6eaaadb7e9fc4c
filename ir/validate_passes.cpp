#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/text.h"
#include "ir/validate_levels.h"

namespace xpipe::ir::validation {

namespace {

/// Schedules with fewer tasks than stages x micro-batches by this factor are refused at once: the
/// sizes of a damaged file must not decide how much memory is asked for.
constexpr std::uint64_t kSparse = 16;

/// The steps and all-reduces of one replica.
struct ReplicaSteps {
  std::vector<std::optional<TaskId>> step;        ///< by mini-batch
  std::vector<std::optional<TaskId>> all_reduce;  ///< by mini-batch
  std::vector<std::optional<TaskId>> next_step;   ///< the first step for this mini-batch or later
  /// The last backward that the step of a mini-batch uses; only of a replicated stage.
  std::vector<std::optional<TaskId>> last_gradient;
};

class Passes {
 public:
  Passes(const Index& index, const Grid& grid, const Order& order, Findings& findings)
      : schedule_(index.schedule),
        index_(index),
        grid_(grid),
        order_(order),
        findings_(findings),
        replicas_(index.replicas.size()) {}

  void check() {
    for (const auto& [another, first] : grid_.twins) {
      findings_.add("duplicate-task", another, "runs twice: expected it once per stage");
    }
    collect_steps();
    for (std::size_t k = 0; k < schedule_.stages.size(); ++k) {
      for (std::uint64_t j = 0; j < grid_.micro_batches; ++j) {
        check_micro_batch(StageId{static_cast<std::uint16_t>(k)}, j);
      }
    }
    if (grid_.trains) {
      for (std::size_t r = 0; r < replicas_.size(); ++r) {
        check_steps(r);
      }
    }
  }

 private:
  [[nodiscard]] std::string text(TaskId id) const { return to_text(schedule_.task(id)); }

  [[nodiscard]] static std::string name(StageId stage, std::string_view word, std::uint64_t index) {
    return std::to_string(index_of(stage)) + std::string(word) + std::to_string(index);
  }

  /// Where `replica` is, said only when its stage has several.
  [[nodiscard]] std::string on_device(std::size_t replica) const {
    const bool several = schedule_.stage(index_.replicas.stage(replica)).is_replicated();
    return several ? " on device " + std::to_string(index_of(index_.replicas.device(replica))) : "";
  }

  void missing(StageId stage, std::string_view word, std::uint64_t j, std::string message) {
    findings_.add("missing-task", name(stage, word, j), std::move(message));
  }

  void require_before(std::string_view code, TaskId first, TaskId second, std::string_view what) {
    if (!order_.before(first, second)) {
      findings_.add(code, second,
                    "does not wait for " + std::string(what) + " " + text(first) +
                        ": expected it after that");
    }
  }

  void collect_steps() {
    const std::uint32_t mini_batches = schedule_.mini_batches;
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      ReplicaSteps& replica = replicas_[r];
      replica.step.resize(mini_batches);
      replica.all_reduce.resize(mini_batches);
      replica.next_step.resize(mini_batches);
      const std::size_t count = schedule_.stage(index_.replicas.stage(r)).devices.size();
      if (count > 1) {
        replica.last_gradient.resize(mini_batches);
      }
      std::vector<bool>& stepped = stepped_[count];
      stepped.resize(mini_batches, false);
      stepped.back() = true;
    }
    for (std::uint32_t i = 0; i < schedule_.tasks.size(); ++i) {
      if (index_.kind[i] != TaskKind::Step && index_.kind[i] != TaskKind::AllReduce) {
        continue;
      }
      const Task& task = schedule_.tasks[i];
      ReplicaSteps& replica = replicas_[index_.replicas.of(task)];
      std::optional<TaskId>* cell = nullptr;
      if (const Step* step = std::get_if<Step>(&task.payload)) {
        cell = &replica.step[index_of(step->mini_batch)];
        stepped_[schedule_.stage(task.stage).devices.size()][index_of(step->mini_batch)] = true;
      } else if (const AllReduce* reduce = std::get_if<AllReduce>(&task.payload)) {
        cell = &replica.all_reduce[index_of(reduce->mini_batch)];
      }
      if (cell != nullptr && cell->has_value()) {
        findings_.add("duplicate-task", TaskId{i},
                      "runs twice: expected it once per stage, replica and mini-batch");
      } else if (cell != nullptr) {
        *cell = TaskId{i};
      }
    }
    for (ReplicaSteps& replica : replicas_) {
      std::optional<TaskId> next;
      for (std::uint32_t i = mini_batches; i-- > 0;) {
        next = replica.step[i] ? replica.step[i] : next;
        replica.next_step[i] = next;
      }
    }
  }

  void check_micro_batch(StageId k, std::uint64_t j) {
    const auto forward = grid_.find(TaskKind::Forward, k, j);
    const auto whole = grid_.find(TaskKind::Backward, k, j);
    const auto input = grid_.find(TaskKind::BackwardInput, k, j);
    const auto weight = grid_.find(TaskKind::BackwardWeight, k, j);
    if (!forward) {
      missing(k, "F", j, "is missing: expected every stage to run every micro-batch forward");
    }
    if (whole && (input || weight)) {
      findings_.add(
          "duplicate-task", *whole,
          "is whole, and " + text(input ? *input : *weight) + " is a part of it: expected either");
    } else if (grid_.trains && !whole && !input && !weight) {
      missing(k, "B", j, "is missing: expected a backward for every micro-batch");
    } else if (!whole && input && !weight) {
      missing(k, "W", j, "is missing: expected the weight part that belongs to " + text(*input));
    } else if (!whole && weight && !input) {
      missing(k, "I", j, "is missing: expected the input part that belongs to " + text(*weight));
    }
    if (schedule_.stage(k).is_replicated() && !on_one_replica(forward, {whole, input, weight})) {
      return;
    }
    for (const auto& backward : {whole, input}) {
      if (forward && backward) {
        require_before("backward-before-forward", *forward, *backward, "its forward");
      }
    }
    if (weight && input) {
      require_before("weight-before-input", *input, *weight, "the input part");
    } else if (weight && forward) {
      require_before("backward-before-forward", *forward, *weight, "its forward");
    }
    check_consumed(j, whole ? whole : weight);
  }

  bool on_one_replica(std::optional<TaskId> first,
                      std::initializer_list<std::optional<TaskId>> others) {
    bool ok = true;
    for (const std::optional<TaskId>& other : others) {
      if (first && other && index_.replica(*first) != index_.replica(*other)) {
        findings_.add("replica-mismatch", *other,
                      "is" + on_device(index_.replica(*other)) + ", and " + text(*first) + " is" +
                          on_device(index_.replica(*first)) + ": expected one replica");
        ok = false;
      }
      first = first ? first : other;
    }
    return ok;
  }

  /// The step and the all-reduce that use the gradient of `backward` come after it.
  void check_consumed(std::uint64_t j, std::optional<TaskId> backward) {
    if (!backward) {
      return;
    }
    ReplicaSteps& replica = replicas_[index_.replica(*backward)];
    const std::uint64_t i = j / schedule_.micro_batches;
    if (replica.all_reduce[i]) {
      require_before("all-reduce-order", *backward, *replica.all_reduce[i], "the backward");
    }
    if (!replica.next_step[i]) {
      return;
    }
    require_before("step-before-backward", *backward, *replica.next_step[i], "the backward");
    if (replica.last_gradient.empty()) {
      return;
    }
    const std::uint32_t at =
        index_of(std::get<Step>(schedule_.task(*replica.next_step[i]).payload).mini_batch);
    if (at != i && replica.all_reduce[at]) {
      require_before("all-reduce-order", *backward, *replica.all_reduce[at], "the backward");
    }
    std::optional<TaskId>& last = replica.last_gradient[at];
    if (!last || order_.before(*last, *backward)) {
      last = backward;
    }
  }

  void check_steps(std::size_t r) {
    const ReplicaSteps& replica = replicas_[r];
    const StageId stage = index_.replicas.stage(r);
    const std::size_t count = schedule_.stage(stage).devices.size();
    std::optional<TaskId> last;
    for (std::uint32_t i = 0; i < schedule_.mini_batches; ++i) {
      if (!replica.step[i] && stepped_[count][i]) {
        findings_.add("step-missing", name(stage, "STEP", i),
                      "is missing" + on_device(r) +
                          (i + 1 == schedule_.mini_batches
                               ? ": expected every stage to use up its gradients by the end"
                           : count > 1 ? ": expected it, as other replicas step there"
                                       : ": expected it, as other stages step there"));
      }
      if (replica.step[i] && last) {
        require_before("step-order", *last, *replica.step[i], "the step");
      }
      last = replica.step[i] ? replica.step[i] : last;
      if (replica.all_reduce[i] && replica.next_step[i]) {
        require_before("all-reduce-order", *replica.all_reduce[i], *replica.next_step[i],
                       "the all-reduce");
      }
      if (count > 1 && replica.step[i]) {
        check_all_reduce(r, i);
      }
    }
  }

  /// Replica `r` steps for mini-batch `i`: its all-reduce waits for the gradients of all replicas.
  void check_all_reduce(std::size_t r, std::uint32_t i) {
    const StageId stage = index_.replicas.stage(r);
    const std::optional<TaskId> own = replicas_[r].all_reduce[i];
    if (!own) {
      findings_.add("all-reduce-missing", name(stage, "ALLREDUCE", i),
                    "is missing" + on_device(r) + ": expected it before the step of each replica");
      return;
    }
    for (std::size_t other = index_.replicas.begin(stage); other < index_.replicas.end(stage);
         ++other) {
      const std::optional<TaskId> gradient = replicas_[other].last_gradient[i];
      if (other != r && gradient && !index_.waits_directly(*own, *gradient)) {
        findings_.add("all-reduce-order", *own,
                      "does not wait" + on_device(r) + " for " + text(*gradient) +
                          on_device(other) + ": expected an edge, as it sums that gradient, too");
      }
    }
  }

  const Schedule& schedule_;
  const Index& index_;
  const Grid& grid_;
  const Order& order_;
  Findings& findings_;
  std::vector<ReplicaSteps> replicas_;
  /// By replicas of a stage, then mini-batch: some stage of so many steps there, or it is the last.
  std::map<std::size_t, std::vector<bool>> stepped_;
};

}  // namespace

void check_counts(const Schedule& schedule, Findings& findings) {
  const std::uint64_t micro_batches = std::uint64_t{schedule.micro_batches} * schedule.mini_batches;
  const std::uint64_t most = kSparse * schedule.tasks.size() + kSparse;
  const std::uint64_t stages = schedule.stages.size();
  if (micro_batches > most / stages || schedule.mini_batches > most / stages) {
    findings.add("missing-task", "schedule",
                 "has " + std::to_string(schedule.tasks.size()) + " tasks for " +
                     std::to_string(stages) + " stages and " + std::to_string(micro_batches) +
                     " micro-batches: expected at least a forward for each pair");
  }
}

void check_passes(const Index& index, const Grid& grid, const Order& order, Findings& findings) {
  Passes(index, grid, order, findings).check();
}

void check_recomputes(const Index& index,
                      const Grid& grid,
                      const Order& order,
                      Findings& findings) {
  if (!grid.has(TaskKind::Recompute)) {
    return;
  }
  const Schedule& schedule = index.schedule;
  for (std::uint32_t i = 0; i < schedule.tasks.size(); ++i) {
    if (index.kind[i] != TaskKind::Recompute) {
      continue;
    }
    const Task& task = schedule.tasks[i];
    const std::uint64_t j = index_of(*micro_batch_of(task));
    const auto forward = grid.find(TaskKind::Forward, task.stage, j);
    const auto backward = grid.gradient(task.stage, j);
    const TaskId other = forward ? *forward : backward.value_or(TaskId{i});
    if (index.replica(other) != index.replica(TaskId{i})) {
      findings.add(
          "replica-mismatch", TaskId{i},
          "is not on the replica of " + to_text(schedule.task(other)) + ": expected one replica");
      continue;
    }
    if (backward && index.replica(*backward) != index.replica(TaskId{i})) {
      continue;  // The backward is on another replica than its forward, which has been told.
    }
    if (forward && !order.before(*forward, TaskId{i})) {
      findings.add("recompute-order", TaskId{i},
                   "does not wait for " + to_text(schedule.task(*forward)) +
                       ": expected it after its forward");
    }
    if (!backward) {
      findings.add("recompute-order", TaskId{i}, "has no backward that it is for");
      continue;
    }
    if (!order.before(TaskId{i}, *backward)) {
      findings.add("recompute-order", TaskId{i},
                   "is not waited for by " + to_text(schedule.task(*backward)) +
                       ": expected it before its backward");
    }
    if (!(*weights_read(task) == *weights_read(schedule.task(*backward)))) {
      findings.add("recompute-slot", TaskId{i},
                   "reads other weights than " + to_text(schedule.task(*backward)) +
                       ": expected the same slot, version and distance");
    }
  }
}

}  // namespace xpipe::ir::validation
