#include "simulator/staleness.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <variant>

#include "ir/replicas.h"
#include "ir/status.h"
#include "ir/task.h"
#include "scheduler/ready_tracker.h"
#include "simulator/slot_life.h"

namespace xpipe::simulator {

namespace {

using ir::index_of;
using std::size_t;

/// What a slot holds. The master's distance is 0.
struct Held {
  ir::Version version = 0;
  ir::Distance distance = 0;
};

/// Replays the versions of all stages.
class VersionReplay {
 public:
  explicit VersionReplay(const ir::Schedule& schedule)
      : schedule_(schedule), replicas_(schedule), stages_(schedule.stages.size()) {
    const size_t micro_batches = size_t{schedule.micro_batches} * schedule.mini_batches;
    for (size_t r = 0; r < replicas_.size(); ++r) {
      slots_.emplace_back(schedule.stage(replicas_.stage(r)).slots);
    }
    for (size_t k = 0; k < stages_.size(); ++k) {
      steps_before_.emplace_back(schedule.mini_batches + size_t{1}, 0);
      stages_[k].forward.resize(micro_batches);
      stages_[k].backward.resize(micro_batches);
    }
    for (const ir::Task& task : schedule.tasks) {
      const auto* step = std::get_if<ir::Step>(&task.payload);
      if (step != nullptr && replicas_.of(task) == replicas_.begin(task.stage)) {
        ++steps_before_[index_of(task.stage)][index_of(step->mini_batch) + 1];
      } else if (task.kind() == ir::TaskKind::BackwardWeight) {
        stages_[index_of(task.stage)].backward_weight.resize(micro_batches);
      }
    }
    for (std::vector<std::int64_t>& steps : steps_before_) {
      for (size_t i = 1; i < steps.size(); ++i) {
        steps[i] += steps[i - 1];
      }
    }
  }

  void apply(const ir::Task& task) {
    std::vector<Held>& slots = slots_[replicas_.of(task)];
    StageStaleness& stage = stages_[index_of(task.stage)];
    switch (task.kind()) {
      case ir::TaskKind::Forward:
        record(task, stage.forward);
        break;
      case ir::TaskKind::Backward:
      case ir::TaskKind::BackwardInput:
        record(task, stage.backward);
        break;
      case ir::TaskKind::BackwardWeight:
        record(task, stage.backward_weight);
        break;
      case ir::TaskKind::Step:
        ++slots[index_of(ir::kMasterSlot)].version;
        break;
      case ir::TaskKind::Predict: {
        const auto& predict = std::get<ir::Predict>(task.payload);
        const Held from = slots[index_of(predict.from)];
        slots[index_of(predict.into)] = {
            from.version, static_cast<ir::Distance>(from.distance + predict.distance)};
        break;
      }
      case ir::TaskKind::Stash: {
        const auto& stash = std::get<ir::Stash>(task.payload);
        slots[index_of(stash.into)] = slots[index_of(stash.from)];
        break;
      }
      case ir::TaskKind::Recompute:  // reads what its backward reads
      case ir::TaskKind::Release:
      case ir::TaskKind::Send:
      case ir::TaskKind::Receive:
      case ir::TaskKind::AllReduce:
      case ir::TaskKind::SumTied:
      case ir::TaskKind::ClipNorm:
        break;
    }
  }

  std::vector<StageStaleness> take() && { return std::move(stages_); }

 private:
  void record(const ir::Task& task, std::vector<VersionRead>& reads) {
    const Held& held = slots_[replicas_.of(task)][index_of(ir::weights_read(task)->slot)];
    const auto i = index_of(ir::mini_batch_of(task, schedule_.micro_batches));
    const std::int64_t sequential = steps_before_[index_of(task.stage)][i];
    reads[index_of(*ir::micro_batch_of(task))] = {held.version, held.distance,
                                                  sequential - std::int64_t{held.version}};
  }

  const ir::Schedule& schedule_;
  ir::Replicas replicas_;
  std::vector<std::vector<Held>> slots_;                 ///< by replica, by slot
  std::vector<std::vector<std::int64_t>> steps_before_;  ///< by stage, by mini-batch
  std::vector<StageStaleness> stages_;
};

/// The reads of mini-batch i.
std::span<const VersionRead> mini_batch(const std::vector<VersionRead>& reads,
                                        size_t i,
                                        size_t micro_batches) {
  return reads.empty() ? std::span<const VersionRead>{}
                       : std::span(reads).subspan(i * micro_batches, micro_batches);
}

bool are_alike(std::span<const VersionRead> a, std::span<const VersionRead> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const VersionRead& x, const VersionRead& y) {
                      return x.staleness == y.staleness && x.distance == y.distance;
                    });
}

/// `period`: mini-batches after which reads repeat, one for each replica where they go round.
void find_steady_state(StageStaleness& stage,
                       size_t period,
                       size_t mini_batches,
                       size_t micro_batches) {
  size_t from = mini_batches - std::min(period, mini_batches);
  const auto all_alike = [&](size_t i, size_t j) {
    return std::ranges::all_of(
        std::initializer_list<const std::vector<VersionRead>*>{&stage.forward, &stage.backward,
                                                               &stage.backward_weight},
        [&](const std::vector<VersionRead>* reads) {
          return are_alike(mini_batch(*reads, i, micro_batches),
                           mini_batch(*reads, j, micro_batches));
        });
  };
  while (from > 0 && all_alike(from - 1, from - 1 + period)) {
    --from;
  }
  stage.is_steady = mini_batches - from > period;
  stage.steady_from = static_cast<std::uint32_t>(stage.is_steady ? from : mini_batches / 2);
}

/// Smallest and largest staleness and the largest distance of the reads from `begin` on.
struct Extremes {
  std::int64_t min = 0;
  std::int64_t max = 0;
  ir::Distance distance = 0;
};

Extremes extremes_of(std::span<const VersionRead> reads) {
  Extremes e{reads.front().staleness, reads.front().staleness, 0};
  for (const VersionRead& read : reads) {
    e.min = std::min(e.min, read.staleness);
    e.max = std::max(e.max, read.staleness);
    e.distance = std::max(e.distance, read.distance);
  }
  return e;
}

void summarize(StageStaleness& stage, size_t period, size_t mini_batches, size_t micro_batches) {
  find_steady_state(stage, period, mini_batches, micro_batches);
  const size_t begin = stage.steady_from * micro_batches;
  const Extremes forward = extremes_of(std::span(stage.forward).subspan(begin));
  Extremes backward = extremes_of(std::span(stage.backward).subspan(begin));
  if (!stage.backward_weight.empty()) {
    const Extremes weight = extremes_of(std::span(stage.backward_weight).subspan(begin));
    backward = {std::min(backward.min, weight.min), std::max(backward.max, weight.max),
                std::max(backward.distance, weight.distance)};
  }
  stage.forward_min = forward.min;
  stage.forward_max = forward.max;
  stage.backward_min = backward.min;
  stage.backward_max = backward.max;
  stage.predict_forward = forward.distance;
  stage.predict_backward = backward.distance;
}

/// Counts the copies of each replica that are alive, task by task in `order`.
void count_storages(const ir::Schedule& schedule,
                    std::span<const ir::TaskId> order,
                    std::vector<StageStaleness>& stages) {
  const std::vector<SlotLife> lives = slot_lives(schedule, order);
  std::vector<std::vector<size_t>> ends(schedule.tasks.size());
  for (size_t i = 0; i < lives.size(); ++i) {
    ends[index_of(lives[i].last_use)].push_back(i);
  }
  std::vector<StorageCount> alive(ir::Replicas(schedule).size());
  const auto slots_of = [&](const SlotLife& life) -> std::uint32_t& {
    StorageCount& now = alive[life.replica];
    return life.is_prediction ? now.prediction_slots : now.stash_slots;
  };
  size_t next = 0;  // lives stand in the order of writing
  for (const ir::TaskId id : order) {
    while (next < lives.size() && lives[next].written_by == id) {
      ++slots_of(lives[next]);
      StorageCount& now = alive[lives[next].replica];
      now.versions_held = 1 + now.stash_slots + now.prediction_slots;
      StorageCount& peak = stages[index_of(lives[next].stage)].peak;
      if (now.versions_held > peak.versions_held) {
        peak = now;
      }
      ++next;
    }
    for (const size_t life : ends[index_of(id)]) {
      --slots_of(lives[life]);
    }
  }
}

}  // namespace

std::vector<StageStaleness> measure_staleness(const ir::Schedule& schedule) {
  const std::vector<ir::TaskId> order =
      scheduler::topological_order(scheduler::TaskGraph(schedule));
  VersionReplay replay(schedule);
  for (const ir::TaskId id : order) {
    replay.apply(schedule.task(id));
  }
  std::vector<StageStaleness> stages = std::move(replay).take();
  if (schedule.mini_batches > 0) {
    for (size_t k = 0; k < stages.size(); ++k) {
      summarize(stages[k], schedule.stages[k].devices.size(), schedule.mini_batches,
                schedule.micro_batches);
    }
  }
  count_storages(schedule, order, stages);
  return stages;
}

}  // namespace xpipe::simulator
