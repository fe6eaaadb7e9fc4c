#include "tests/policies/replay.h"

#include <algorithm>
#include <deque>
#include <optional>

#include <doctest/doctest.h>

#include "ir/text.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"
#include "scheduler/stage_graph.h"

namespace xpipe::tests {
namespace {

using ir::index_of;

const ir::Lane& compute_lane(const ir::Schedule& schedule,
                             std::uint32_t stage,
                             std::size_t replica = 0) {
  for (const ir::Lane& lane : schedule.lanes) {
    if (lane.kind == ir::LaneKind::Compute &&
        lane.device == schedule.stages[stage].devices[replica]) {
      return lane;
    }
  }
  FAIL("stage " << stage << " has no compute lane");
  return schedule.lanes[0];
}

/// What a storage holds, and from when until when somebody needs it (positions in the lane).
struct Copy {
  ir::Version version = 0;
  ir::Distance distance = 0;
  std::string content;
  std::size_t written = 0;
  std::size_t last_read = 0;
};

std::uint32_t peak_of(const std::vector<Copy>& copies) {
  std::uint32_t peak = 0;
  for (const Copy& at : copies) {
    const auto alive = std::count_if(copies.begin(), copies.end(), [&](const Copy& copy) {
      return copy.written <= at.written && at.written <= copy.last_read;
    });
    peak = std::max(peak, static_cast<std::uint32_t>(alive));
  }
  return peak;
}

class Replay {
 public:
  Replay(const ir::Schedule& schedule, std::uint32_t stage, std::size_t replica) {
    const std::size_t micro_batches =
        static_cast<std::size_t>(schedule.micro_batches) * schedule.mini_batches;
    result_.forwards.resize(micro_batches);
    result_.backwards.resize(micro_batches);
    result_.step_from.resize(schedule.mini_batches);
    holds_.resize(schedule.stages[stage].slots);
    for (ir::TaskId id : compute_lane(schedule, stage, replica).order) {
      ++position_;
      const ir::Task& task = schedule.task(id);
      if (index_of(task.stage) == stage) {
        text_ = ir::to_text(task);
        std::visit([this](const auto& payload) { play(payload); }, task.payload);
      }
    }
    result_.last_version = master_;
    result_.versions_held = 1 + peak_of(copies_);
  }

  [[nodiscard]] StageReplay take() { return std::move(result_); }

 private:
  void fault(const std::string& what) { result_.faults.push_back(text_ + ": " + what); }

  void note(char kind, std::uint32_t index) {
    result_.order.push_back(kind);
    result_.indices.push_back(index);
  }

  PassRead read(const ir::WeightRead& weights) {
    PassRead result{weights.version, weights.distance, weights.slot, ""};
    if (weights.slot == ir::kMasterSlot) {
      if (weights.version != master_ || weights.distance != 0) {
        fault("the master holds version " + std::to_string(master_));
      }
      result.content = "version " + std::to_string(master_);
      return result;
    }
    const std::optional<std::size_t> held = holds_.at(index_of(weights.slot));
    if (!held || copies_[*held].version != weights.version ||
        copies_[*held].distance != weights.distance) {
      fault("the slot does not hold that");
      return result;
    }
    copies_[*held].last_read = position_;
    result.content = copies_[*held].content;
    return result;
  }

  void write(ir::SlotId slot, ir::Version from, ir::Distance distance, std::string content) {
    if (from != master_) {
      fault("the master holds version " + std::to_string(master_));
    }
    holds_.at(index_of(slot)) = copies_.size();
    copies_.push_back({from, distance, std::move(content), position_, position_});
  }

  void pass(char kind, ir::MicroBatch micro_batch, PassRead read, std::vector<PassRead>& reads) {
    note(kind, index_of(micro_batch));
    reads.at(index_of(micro_batch)) = std::move(read);
  }

  void play(const ir::Forward& task) {
    pass('F', task.micro_batch, read(task.weights), result_.forwards);
    result_.in_flight = std::max(result_.in_flight, ++open_);
  }

  void play(const ir::Backward& task) {
    pass('B', task.micro_batch, read(task.weights), result_.backwards);
    --open_;
  }

  void play(const ir::Step& task) {
    note('S', index_of(task.mini_batch));
    if (task.version != master_) {
      fault("the master holds version " + std::to_string(master_));
    }
    result_.step_from.at(index_of(task.mini_batch)) = master_++;
  }

  void play(const ir::Predict& task) {
    ++result_.predicts[index_of(task.mini_batch)];
    ++(task.pass == ir::Pass::Forward ? result_.forward_predicts : result_.backward_predicts);
    write(task.into, task.version, task.distance, text_);
  }

  void play(const ir::Stash& task) {
    write(task.into, task.version, 0, "version " + std::to_string(task.version));
  }

  void play(const ir::Release& task) { holds_.at(index_of(task.slot)).reset(); }

  void play(const ir::BackwardInput& /*task*/) { fault("not expected of these policies"); }

  void play(const ir::BackwardWeight& /*task*/) { fault("not expected of these policies"); }

  void play(const ir::Recompute& task) { read(task.weights); }

  void play(const ir::AllReduce& /*task*/) {}

  void play(const ir::SumTied& /*task*/) {}

  void play(const ir::ClipNorm& /*task*/) {}

  void play(const ir::Send& /*task*/) { fault("a send on a compute lane"); }

  void play(const ir::Receive& /*task*/) { fault("a receive on a compute lane"); }

  StageReplay result_;
  std::vector<Copy> copies_;                       ///< all there ever were
  std::vector<std::optional<std::size_t>> holds_;  ///< by slot: an index into copies_
  ir::Version master_ = 0;
  std::uint32_t open_ = 0;
  std::size_t position_ = 0;
  std::string text_;
};

std::int64_t slots_of(const ir::Task& task, std::int64_t forward, std::int64_t backward) {
  return task.kind() == ir::TaskKind::Forward    ? forward
         : task.kind() == ir::TaskKind::Backward ? backward
                                                 : 0;
}

}  // namespace

StageReplay replay_stage(const ir::Schedule& schedule, std::uint32_t stage, std::size_t replica) {
  return Replay(schedule, stage, replica).take();
}

scheduler::StagePromise measured_promise(const StageReplay& stage, std::uint32_t micro_batches) {
  scheduler::StagePromise measured;
  measured.in_flight = stage.in_flight;
  measured.versions_held = stage.versions_held;
  for (std::uint32_t j = 0; j < stage.forwards.size(); ++j) {
    const std::uint32_t sequential = j / micro_batches;
    const PassRead& forward = stage.forwards[j];
    const PassRead& backward = stage.backwards[j];
    measured.forward_staleness = std::max(measured.forward_staleness, sequential - forward.version);
    measured.backward_staleness =
        std::max(measured.backward_staleness, sequential - backward.version);
    measured.predict_forward = std::max(measured.predict_forward, forward.distance);
    if (stage.backward_predicts > 0) {
      measured.predict_backward = std::max(measured.predict_backward, backward.distance);
    }
  }
  return measured;
}

bool is_sequential(const StageReplay& stage, std::uint32_t micro_batches) {
  for (std::uint32_t j = 0; j < stage.forwards.size(); ++j) {
    for (const PassRead* read : {&stage.forwards[j], &stage.backwards[j]}) {
      if (read->version != j / micro_batches || read->distance != 0) {
        return false;
      }
    }
  }
  std::vector<std::uint32_t> backwards;
  for (std::size_t at = 0; at < stage.order.size(); ++at) {
    if (stage.order[at] == 'B') {
      backwards.push_back(stage.indices[at]);
    }
  }
  return std::is_sorted(backwards.begin(), backwards.end());
}

std::vector<std::int64_t> start_slots(const ir::Schedule& schedule,
                                      std::int64_t forward,
                                      std::int64_t backward) {
  const std::size_t tasks = schedule.tasks.size();
  std::vector<std::vector<std::size_t>> after(tasks);
  std::vector<std::size_t> waits_for(tasks, 0);
  const auto order = [&](ir::TaskId from, ir::TaskId to) {
    after[index_of(from)].push_back(index_of(to));
    ++waits_for[index_of(to)];
  };
  for (const ir::Edge& edge : schedule.edges) {
    order(edge.from, edge.to);
  }
  for (const ir::Lane& lane : schedule.lanes) {
    for (std::size_t at = 1; at < lane.order.size(); ++at) {
      order(lane.order[at - 1], lane.order[at]);
    }
  }
  std::vector<std::int64_t> start(tasks, 0);
  std::deque<std::size_t> ready;
  for (std::size_t task = 0; task < tasks; ++task) {
    if (waits_for[task] == 0) {
      ready.push_back(task);
    }
  }
  std::size_t done = 0;
  for (; !ready.empty(); ++done) {
    const std::size_t task = ready.front();
    ready.pop_front();
    const std::int64_t end = start[task] + slots_of(schedule.tasks[task], forward, backward);
    for (std::size_t next : after[task]) {
      start[next] = std::max(start[next], end);
      if (--waits_for[next] == 0) {
        ready.push_back(next);
      }
    }
  }
  return done == tasks ? start : std::vector<std::int64_t>();
}

std::int64_t makespan_in_slots(const ir::Schedule& schedule,
                               std::int64_t forward,
                               std::int64_t backward) {
  const std::vector<std::int64_t> start = start_slots(schedule, forward, backward);
  std::int64_t last = 0;
  for (std::size_t task = 0; task < start.size(); ++task) {
    last = std::max(last, start[task] + slots_of(schedule.tasks[task], forward, backward));
  }
  return last;
}

std::string draw(const ir::Schedule& schedule, std::uint32_t stage) {
  const std::vector<std::int64_t> start = start_slots(schedule, 1, 1);
  std::string picture;
  std::int64_t now = stage;  // the paper's rows begin at the first forward
  for (ir::TaskId id : compute_lane(schedule, stage).order) {
    const ir::Task& task = schedule.task(id);
    if (slots_of(task, 1, 1) == 0) {
      continue;
    }
    for (; now < start[index_of(id)]; ++now) {
      picture += "_ ";
    }
    const std::string number = std::to_string(index_of(*ir::micro_batch_of(task)));
    picture += (task.kind() == ir::TaskKind::Forward ? number : "|" + number + "|") + " ";
    ++now;
  }
  picture.pop_back();
  return picture;
}

std::string lane_text(const ir::Schedule& schedule, std::uint32_t stage) {
  std::string text;
  for (ir::TaskId id : compute_lane(schedule, stage).order) {
    text += (text.empty() ? "" : " ") + ir::to_text(schedule.task(id));
  }
  return text;
}

const scheduler::PolicyRegistry& registry() {
  static const scheduler::PolicyRegistry all = [] {
    scheduler::PolicyRegistry result;
    policies::register_all(result);
    return result;
  }();
  return all;
}

ir::Schedule compiled(const std::string& policy,
                      std::uint32_t stages,
                      std::uint32_t micro_batches,
                      std::uint32_t mini_batches,
                      const scheduler::Options& options) {
  const auto found = registry().find(policy);
  REQUIRE(found.ok());
  auto schedule = scheduler::compile(*found.value(), {stages, micro_batches, mini_batches, options},
                                     scheduler::chain_of(stages));
  if (!schedule.ok()) {
    FAIL(policy << " D=" << stages << " T=" << micro_batches << " N=" << mini_batches << ": "
                << schedule.error().to_string());
  }
  return std::move(schedule).value();
}

}  // namespace xpipe::tests
