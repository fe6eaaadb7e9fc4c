#include <cstdint>
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

/// The steps and all-reduces of one stage.
struct StageSteps {
  std::vector<std::optional<TaskId>> step;        ///< by mini-batch
  std::vector<std::optional<TaskId>> all_reduce;  ///< by mini-batch
  std::vector<std::optional<TaskId>> next_step;   ///< the first step for this mini-batch or later
};

class Passes {
 public:
  Passes(const Index& index, const Grid& grid, const Order& order, Findings& findings)
      : schedule_(index.schedule),
        index_(index),
        grid_(grid),
        order_(order),
        findings_(findings),
        stages_(schedule_.stages.size()) {}

  void check() {
    for (const auto& [another, first] : grid_.twins) {
      findings_.add("duplicate-task", another, "runs twice: expected it once per stage");
    }
    collect_steps();
    for (std::size_t k = 0; k < stages_.size(); ++k) {
      for (std::uint64_t j = 0; j < grid_.micro_batches; ++j) {
        check_micro_batch(StageId{static_cast<std::uint16_t>(k)}, j);
      }
    }
    if (grid_.trains) {
      check_steps();
    }
  }

 private:
  [[nodiscard]] std::string text(TaskId id) const { return to_text(schedule_.task(id)); }

  [[nodiscard]] static std::string name(StageId stage, std::string_view word, std::uint64_t index) {
    return std::to_string(index_of(stage)) + std::string(word) + std::to_string(index);
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
    for (StageSteps& stage : stages_) {
      stage.step.resize(mini_batches);
      stage.all_reduce.resize(mini_batches);
      stage.next_step.resize(mini_batches);
    }
    stepped_.resize(mini_batches, false);
    for (std::uint32_t i = 0; i < schedule_.tasks.size(); ++i) {
      if (index_.kind[i] != TaskKind::Step && index_.kind[i] != TaskKind::AllReduce) {
        continue;
      }
      const Task& task = schedule_.tasks[i];
      StageSteps& stage = stages_[index_of(task.stage)];
      std::optional<TaskId>* cell = nullptr;
      if (const Step* step = std::get_if<Step>(&task.payload)) {
        cell = &stage.step[index_of(step->mini_batch)];
        stepped_[index_of(step->mini_batch)] = true;
      } else if (const AllReduce* reduce = std::get_if<AllReduce>(&task.payload)) {
        cell = &stage.all_reduce[index_of(reduce->mini_batch)];
      }
      if (cell != nullptr && cell->has_value()) {
        findings_.add("duplicate-task", TaskId{i},
                      "runs twice: expected it once per stage and mini-batch");
      } else if (cell != nullptr) {
        *cell = TaskId{i};
      }
    }
    stepped_.back() = true;
    for (StageSteps& stage : stages_) {
      std::optional<TaskId> next;
      for (std::uint32_t i = mini_batches; i-- > 0;) {
        next = stage.step[i] ? stage.step[i] : next;
        stage.next_step[i] = next;
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
    check_consumed(k, j, whole ? whole : weight);
  }

  /// The step and the all-reduce that use the gradient of `backward` come after it.
  void check_consumed(StageId k, std::uint64_t j, std::optional<TaskId> backward) {
    if (!backward) {
      return;
    }
    const StageSteps& stage = stages_[index_of(k)];
    const std::uint64_t i = j / schedule_.micro_batches;
    if (stage.next_step[i]) {
      require_before("step-before-backward", *backward, *stage.next_step[i], "the backward");
    }
    if (stage.all_reduce[i]) {
      require_before("all-reduce-order", *backward, *stage.all_reduce[i], "the backward");
    }
  }

  void check_steps() {
    for (std::size_t k = 0; k < stages_.size(); ++k) {
      const StageSteps& stage = stages_[k];
      std::optional<TaskId> last;
      for (std::uint32_t i = 0; i < schedule_.mini_batches; ++i) {
        if (!stage.step[i] && stepped_[i]) {
          findings_.add("step-missing", name(StageId{static_cast<std::uint16_t>(k)}, "STEP", i),
                        i + 1 == schedule_.mini_batches
                            ? "is missing: expected every stage to use up its gradients by the end"
                            : "is missing: expected it, as other stages step there");
        }
        if (stage.step[i] && last) {
          require_before("step-order", *last, *stage.step[i], "the step");
        }
        last = stage.step[i] ? stage.step[i] : last;
        if (stage.all_reduce[i] && stage.next_step[i]) {
          require_before("all-reduce-order", *stage.all_reduce[i], *stage.next_step[i],
                         "the all-reduce");
        }
      }
    }
  }

  const Schedule& schedule_;
  const Index& index_;
  const Grid& grid_;
  const Order& order_;
  Findings& findings_;
  std::vector<StageSteps> stages_;
  std::vector<bool> stepped_;  ///< by mini-batch: some stage steps there, or it is the last one
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
