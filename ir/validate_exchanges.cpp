// What several stages do together before a step: sums of tied weights, then the clip by the norm of
// all gradients. Each needs the gradients of others, so it waits for them by edges:
//
//   stage 0   .. 0B1 [0ALLREDUCE0] 0SUMTIED0[3]  0CLIP0  0STEP0
//   stage 3   .. 3B1 [3ALLREDUCE0] 3SUMTIED0[0]  3CLIP0  3STEP0
#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/text.h"
#include "ir/validate_levels.h"

namespace xpipe::ir::validation {

namespace {

using Cells = std::vector<std::optional<TaskId>>;  // by mini-batch

/// The tasks of one replica that add to its gradients, exchange them or use them up.
struct Replica {
  std::vector<TaskId> gradients;  ///< backwards, weight parts and all-reduces
  std::map<StageId, Cells> ties;  ///< by peer
  Cells clips;
  Cells steps;
};

class Exchanges {
 public:
  Exchanges(const Index& index, const Order& order, Findings& findings)
      : schedule_(index.schedule),
        index_(index),
        order_(order),
        findings_(findings),
        replicas_(index.replicas.size()) {}

  void check() {
    for (Replica& replica : replicas_) {
      replica.clips.resize(schedule_.mini_batches);
      replica.steps.resize(schedule_.mini_batches);
    }
    for (std::uint32_t i = 0; i < schedule_.tasks.size(); ++i) {
      collect(TaskId{i});
    }
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      for (const auto& [peer, cells] : replicas_[r].ties) {
        check_ties(r, peer);
      }
    }
    if (clips_) {
      check_clips();
    }
  }

 private:
  [[nodiscard]] std::string text(TaskId id) const { return to_text(schedule_.task(id)); }

  [[nodiscard]] std::string on_device(std::size_t replica) const {
    const bool several = schedule_.stage(index_.replicas.stage(replica)).is_replicated();
    return several ? " on device " + std::to_string(index_of(index_.replicas.device(replica))) : "";
  }

  void collect(TaskId id) {
    const TaskKind kind = index_.kind[index_of(id)];
    const bool adds = kind == TaskKind::Backward || kind == TaskKind::BackwardWeight ||
                      kind == TaskKind::AllReduce;
    if (!adds && kind != TaskKind::SumTied && kind != TaskKind::ClipNorm &&
        kind != TaskKind::Step) {
      return;
    }
    const Task& task = schedule_.task(id);
    Replica& replica = replicas_[index_.replicas.of(task)];
    if (adds) {
      replica.gradients.push_back(id);
      return;
    }
    const std::uint32_t i = index_of(mini_batch_of(task, schedule_.micro_batches));
    std::optional<TaskId>* cell = nullptr;
    if (const auto* tied = std::get_if<SumTied>(&task.payload)) {
      Cells& cells = replica.ties[tied->peer];
      cells.resize(schedule_.mini_batches);
      cell = &cells[i];
    } else {
      cell = kind == TaskKind::Step ? &replica.steps[i] : &replica.clips[i];
      clips_ |= kind == TaskKind::ClipNorm;
    }
    if (!cell->has_value()) {
      *cell = id;
    } else if (kind != TaskKind::Step) {  // check_passes() tells of those
      findings_.add("duplicate-task", id,
                    "runs twice: expected it once per stage, replica and mini-batch");
    }
  }

  /// What `replica` has to wait for before it gives its gradients to the exchange at the step of
  /// `mini_batch`: the last one that the step uses, sums of tied weights included for a clip.
  [[nodiscard]] std::optional<TaskId> last_gradient(std::size_t r,
                                                    std::uint32_t mini_batch,
                                                    bool with_ties) const {
    const Replica& replica = replicas_[r];
    std::optional<TaskId> last;
    const auto consider = [&](TaskId id) {
      if (!last || order_.before(*last, id)) {
        last = id;
      }
    };
    const auto [begin, end] = uses_[r][mini_batch];
    for (auto next = begin; next != end; ++next) {
      consider(*next);
    }
    if (with_ties) {
      for (const auto& [peer, cells] : replica.ties) {
        if (cells[mini_batch]) {
          consider(*cells[mini_batch]);
        }
      }
    }
    return last;
  }

  /// Sorts each replica's gradients by the step that uses them.
  void find_uses() {
    if (!uses_.empty()) {
      return;
    }
    uses_.resize(replicas_.size());
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      Replica& replica = replicas_[r];
      std::vector<std::uint32_t> step_of(schedule_.mini_batches, schedule_.mini_batches);
      for (std::uint32_t i = schedule_.mini_batches, next = i; i-- > 0;) {
        next = replica.steps[i] ? i : next;
        step_of[i] = next;
      }
      const auto used_by = [&](TaskId id) {
        return step_of[index_of(mini_batch_of(schedule_.task(id), schedule_.micro_batches))];
      };
      std::stable_sort(replica.gradients.begin(), replica.gradients.end(),
                       [&](TaskId a, TaskId b) { return used_by(a) < used_by(b); });
      auto next = replica.gradients.begin();
      for (std::uint32_t i = 0; i < schedule_.mini_batches; ++i) {
        const auto begin = next;
        next = std::find_if(begin, replica.gradients.end(),
                            [&](TaskId id) { return used_by(id) > i; });
        uses_[r].emplace_back(begin, next);
      }
    }
  }

  /// `exchange` of replica `r` comes after all that its step uses, before the step, and waits for
  /// the gradients of `others`.
  void check_place(std::string_view code,
                   TaskId exchange,
                   std::size_t r,
                   std::uint32_t i,
                   const std::vector<std::size_t>& others,
                   bool with_ties) {
    find_uses();
    const Replica& replica = replicas_[r];
    const auto [begin, end] = uses_[r][i];
    std::vector<TaskId> used(begin, end);
    if (with_ties) {
      for (const auto& [peer, cells] : replica.ties) {
        if (cells[i]) {
          used.push_back(*cells[i]);
        }
      }
    }
    for (const TaskId gradient : used) {
      if (!order_.before(gradient, exchange)) {
        findings_.add(code, exchange,
                      "does not wait for " + text(gradient) + ": expected it after that");
      }
    }
    if (!replica.steps[i]) {
      findings_.add(code, exchange, "has no step that it is for: expected one behind it");
    } else if (!order_.before(exchange, *replica.steps[i])) {
      findings_.add(code, *replica.steps[i],
                    "does not wait for " + text(exchange) + ": expected it after that");
    }
    for (const std::size_t other : others) {
      const std::optional<TaskId> gradient = last_gradient(other, i, with_ties);
      if (gradient && !index_.waits_directly(exchange, *gradient)) {
        findings_.add(code, exchange,
                      "does not wait" + on_device(r) + " for " + text(*gradient) +
                          on_device(other) + ": expected an edge, as it uses that gradient, too");
      }
    }
  }

  [[nodiscard]] std::vector<std::size_t> replicas_of(StageId stage) const {
    std::vector<std::size_t> list;
    for (std::size_t r = index_.replicas.begin(stage); r < index_.replicas.end(stage); ++r) {
      list.push_back(r);
    }
    return list;
  }

  void missing_tie(std::size_t r, StageId peer, std::uint32_t i, const std::string& why) {
    const Task wanted{SumTied{MiniBatch{i}, peer}, {}, index_.replicas.stage(r)};
    findings_.add("tie-missing", to_text(wanted), "is missing" + on_device(r) + ": " + why);
  }

  /// Replica `r` shares weights with `peer`.
  void check_ties(std::size_t r, StageId peer) {
    const StageId stage = index_.replicas.stage(r);
    const Cells& cells = replicas_[r].ties.at(peer);
    const std::vector<std::size_t> others = replicas_of(peer);
    for (std::uint32_t i = 0; i < schedule_.mini_batches; ++i) {
      if (!cells[i]) {
        if (replicas_[r].steps[i]) {
          missing_tie(r, peer, i, "expected it before each step, as there is one before another");
        }
        continue;
      }
      for (const std::size_t other : others) {
        const auto back = replicas_[other].ties.find(stage);
        if (back == replicas_[other].ties.end()) {
          missing_tie(other, stage, i, "expected it, as " + text(*cells[i]) + " sums with it");
        }
      }
      check_place("tie-order", *cells[i], r, i, others, false);
    }
  }

  void check_clips() {
    std::vector<std::size_t> all(replicas_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    for (std::uint32_t i = 0; i < schedule_.mini_batches; ++i) {
      const bool some = std::any_of(replicas_.begin(), replicas_.end(), [i](const Replica& r) {
        return r.clips[i].has_value() || r.steps[i].has_value();
      });
      for (std::size_t r = 0; some && r < replicas_.size(); ++r) {
        if (!replicas_[r].clips[i]) {
          const Task wanted{ClipNorm{MiniBatch{i}}, {}, index_.replicas.stage(r)};
          findings_.add("clip-missing", to_text(wanted),
                        "is missing" + on_device(r) +
                            ": expected it on every stage before each step, as the norm is over "
                            "all of them");
          continue;
        }
        std::vector<std::size_t> others = all;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(r));
        check_place("clip-order", *replicas_[r].clips[i], r, i, others, true);
      }
    }
  }

  using Uses = std::pair<std::vector<TaskId>::const_iterator, std::vector<TaskId>::const_iterator>;

  const Schedule& schedule_;
  const Index& index_;
  const Order& order_;
  Findings& findings_;
  std::vector<Replica> replicas_;
  std::vector<std::vector<Uses>> uses_;  ///< by replica, then the step's mini-batch
  bool clips_ = false;
};

}  // namespace

void check_exchanges(const Index& index, const Order& order, Findings& findings) {
  const auto is_exchange = [](TaskKind kind) {
    return kind == TaskKind::SumTied || kind == TaskKind::ClipNorm;
  };
  if (std::any_of(index.kind.begin(), index.kind.end(), is_exchange)) {
    Exchanges(index, order, findings).check();
  }
}

}  // namespace xpipe::ir::validation
