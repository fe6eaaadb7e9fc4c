#include "simulator/memory_events.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "ir/status.h"
#include "ir/task.h"
#include "simulator/slot_life.h"

namespace xpipe::simulator {

namespace {

using ir::Bytes;
using ir::index_of;
using ir::Nanos;
using ir::TaskId;
using scheduler::StageCosts;
using std::size_t;

bool is_before(const MemoryEvent& a, const MemoryEvent& b) {
  return a.time != b.time ? a.time < b.time : a.phase < b.phase;
}

/// The events of one device, as runs of which each is nearly always sorted already.
class EventRuns {
 public:
  /// `events` are as many as are likely.
  void start_run(size_t events) { runs_.emplace_back().reserve(events); }

  void take(Nanos time, MemoryKind kind, Bytes bytes) {
    add({time, bytes, MemoryPhase::Starts, kind});
  }

  /// What has been held since `begin` ends at `time`.
  void give(Nanos begin, Nanos time, MemoryKind kind, Bytes bytes) {
    add({time, -bytes, time > begin ? MemoryPhase::Ends : MemoryPhase::EndsAtOnce, kind});
  }

  /// All runs as one, sorted. Bottom up, so that every event moves log2(runs) times.
  std::vector<MemoryEvent> merged() && {
    for (std::vector<MemoryEvent>& run : runs_) {
      if (!std::ranges::is_sorted(run, is_before)) {
        std::ranges::stable_sort(run, is_before);
      }
    }
    while (runs_.size() > 1) {
      std::vector<std::vector<MemoryEvent>> longer;
      for (size_t i = 0; i + 1 < runs_.size(); i += 2) {
        std::vector<MemoryEvent> both;
        both.reserve(runs_[i].size() + runs_[i + 1].size());
        std::ranges::merge(runs_[i], runs_[i + 1], std::back_inserter(both), is_before);
        longer.push_back(std::move(both));
      }
      if (runs_.size() % 2 == 1) {
        longer.push_back(std::move(runs_.back()));
      }
      runs_ = std::move(longer);
    }
    return runs_.empty() ? std::vector<MemoryEvent>() : std::move(runs_.front());
  }

 private:
  void add(const MemoryEvent& event) {
    if (event.bytes != 0) {
      runs_.back().push_back(event);
    }
  }

  std::vector<std::vector<MemoryEvent>> runs_;
};

class Collector {
 public:
  Collector(const ir::Schedule& schedule,
            const ir::Timeline& timeline,
            const scheduler::CostModel& costs)
      : schedule_(schedule),
        timeline_(timeline),
        costs_(costs),
        always_(schedule.devices),
        lanes_(schedule.devices),
        lives_(schedule.devices) {
    for (const ir::Lane& lane : schedule.lanes) {
      lanes_[index_of(lane.device)].push_back(&lane);
    }
    for (size_t k = 0; k < schedule.stages.size(); ++k) {
      for (const ir::DeviceId device : schedule.stages[k].devices) {
        const StageCosts& c =
            scheduler::costs_on(costs, ir::StageId(static_cast<std::uint16_t>(k)), device);
        always(device, MemoryKind::Weights) += c.parameter_bytes;
        always(device, MemoryKind::Optimizer) += c.optimizer_bytes;
      }
    }
    find_recomputes();
    find_copies();
    find_ends_of_messages();
  }

  void collect(const TakeEvents& take) {
    for (size_t d = 0; d < lanes_.size(); ++d) {
      EventRuns runs;
      for (const ir::Lane* lane : lanes_[d]) {
        if (lane->kind == ir::LaneKind::Compute) {
          walk_compute_lane(*lane, runs);
        } else {
          walk_message_lane(*lane, runs);
        }
      }
      add_copies(lives_[d], runs);
      take(always_[d], std::move(runs).merged());
    }
  }

 private:
  /// One stage on one device, as its compute lane is walked.
  struct Replica {
    const StageCosts* costs = nullptr;
    bool predicts = false;
    std::vector<std::uint32_t> steps;  ///< mini-batches of its steps, ascending
    /// Accumulators in use: by the step that uses them, from the first start to the last end of a
    /// backward.
    std::map<std::uint32_t, std::pair<Nanos, Nanos>> gradients;
  };

  [[nodiscard]] const ir::Span& span(TaskId id) const { return timeline_.spans[index_of(id)]; }

  Bytes& always(ir::DeviceId device, MemoryKind kind) {
    return always_[index_of(device)][static_cast<size_t>(kind)];
  }

  /// The place of a micro-batch on a stage; a micro-batch is on one replica only.
  [[nodiscard]] size_t place_of(const ir::Task& task) const {
    return size_t{index_of(task.stage)} * schedule_.micro_batches * schedule_.mini_batches +
           index_of(*ir::micro_batch_of(task));
  }

  void find_recomputes() {
    const size_t places =
        schedule_.stages.size() * schedule_.micro_batches * schedule_.mini_batches;
    held_since_.resize(places, 0);
    for (const ir::Task& task : schedule_.tasks) {
      if (task.kind() == ir::TaskKind::Recompute) {
        is_recomputed_.resize(places, false);
        is_recomputed_[place_of(task)] = true;
      }
    }
  }

  [[nodiscard]] bool is_recomputed(size_t place) const {
    return !is_recomputed_.empty() && is_recomputed_[place];
  }

  /// The steps of the stages on a compute lane.
  [[nodiscard]] std::map<ir::StageId, Replica> with_steps(const ir::Lane& lane) const {
    std::map<ir::StageId, Replica> replicas;
    for (const TaskId id : lane.order) {
      if (const auto* step = std::get_if<ir::Step>(&schedule_.task(id).payload)) {
        replicas[schedule_.task(id).stage].steps.push_back(index_of(step->mini_batch));
      }
    }
    return replicas;
  }

  void walk_compute_lane(const ir::Lane& lane, EventRuns& runs) {
    runs.start_run(lane.order.size());  // a forward takes, a backward gives
    std::map<ir::StageId, Replica> replicas = with_steps(lane);
    for (const TaskId id : lane.order) {
      const ir::Task& task = schedule_.task(id);
      Replica& replica = replicas[task.stage];
      if (replica.costs == nullptr) {
        replica.costs = &scheduler::costs_on(costs_, task.stage, lane.device);
      }
      replica.predicts |= task.kind() == ir::TaskKind::Predict;
      apply(task, span(id), replica, runs);
    }
    for (auto& [stage, replica] : replicas) {
      for (const auto& [batch, life] : replica.gradients) {  // a segment that ends without a step
        runs.give(life.first, life.second, MemoryKind::Gradients, replica.costs->parameter_bytes);
      }
      if (replica.predicts) {
        always(lane.device, MemoryKind::Optimizer) += replica.costs->prediction_bytes;
      }
    }
  }

  /// Everything but copies of weights and messages.
  void apply(const ir::Task& task, const ir::Span& s, Replica& replica, EventRuns& runs) {
    if (ir::weights_read(task) == nullptr) {
      if (task.kind() == ir::TaskKind::Step) {
        end_gradients(index_of(ir::mini_batch_of(task, schedule_.micro_batches)), s.end, replica,
                      runs);
      }
      return;
    }
    const StageCosts& costs = *replica.costs;
    start_activations(task, s, costs, runs);
    runs.take(s.start, MemoryKind::Workspace, costs.workspace_bytes);
    if (task.kind() == ir::TaskKind::Backward || task.kind() == ir::TaskKind::BackwardWeight) {
      const auto batch = index_of(ir::mini_batch_of(task, schedule_.micro_batches));
      const auto step = std::ranges::lower_bound(replica.steps, batch);
      const auto [entry, is_new] = replica.gradients.try_emplace(
          step == replica.steps.end() ? batch : *step, s.start, s.end);
      entry->second.second = s.end;
      if (is_new) {
        runs.take(s.start, MemoryKind::Gradients, costs.parameter_bytes);
      }
    }
    end_activations(task, s, costs, runs);
    runs.give(s.start, s.end, MemoryKind::Workspace, costs.workspace_bytes);
  }

  void start_activations(const ir::Task& task,
                         const ir::Span& s,
                         const StageCosts& costs,
                         EventRuns& runs) {
    const size_t place = place_of(task);
    if (task.kind() == ir::TaskKind::Forward) {
      held_since_[place] = s.start;
      runs.take(s.start, MemoryKind::Activations,
                is_recomputed(place) ? costs.kept_bytes : costs.saved_bytes);
    } else if (task.kind() == ir::TaskKind::Recompute) {
      runs.give(held_since_[place], s.start, MemoryKind::Activations, costs.kept_bytes);
      held_since_[place] = s.start;
      runs.take(s.start, MemoryKind::Activations, costs.recomputed_bytes);
    }
  }

  void end_activations(const ir::Task& task,
                       const ir::Span& s,
                       const StageCosts& costs,
                       EventRuns& runs) {
    const size_t place = place_of(task);
    const Bytes held = is_recomputed(place) ? costs.recomputed_bytes : costs.saved_bytes;
    if (task.kind() == ir::TaskKind::Backward || task.kind() == ir::TaskKind::BackwardInput) {
      runs.give(held_since_[place], s.end, MemoryKind::Activations, held);
    }
    if (task.kind() == ir::TaskKind::BackwardInput) {
      held_since_[place] = s.end;
      runs.take(s.end, MemoryKind::Activations, costs.saved_for_weight_bytes);
    } else if (task.kind() == ir::TaskKind::BackwardWeight) {
      runs.give(held_since_[place], s.end, MemoryKind::Activations, costs.saved_for_weight_bytes);
    }
  }

  /// A step uses up what has been accumulated for its mini-batch (with replicas that take whole
  /// mini-batches in turn: for its own one of the group).
  static void end_gradients(std::uint32_t batch, Nanos end, Replica& replica, EventRuns& runs) {
    const auto last = replica.gradients.upper_bound(batch);
    for (auto entry = replica.gradients.begin(); entry != last; ++entry) {
      runs.give(entry->second.first, end, MemoryKind::Gradients, replica.costs->parameter_bytes);
    }
    replica.gradients.erase(replica.gradients.begin(), last);
  }

  void find_copies() {
    std::vector<TaskId> order;
    for (const ir::Lane& lane : schedule_.lanes) {
      if (lane.kind == ir::LaneKind::Compute) {
        order.insert(order.end(), lane.order.begin(), lane.order.end());
      }
    }
    for (const SlotLife& life : slot_lives(schedule_, order)) {
      const ir::Lane& lane = schedule_.lane(schedule_.task(life.written_by).lane);
      lives_[index_of(lane.device)].push_back(life);
    }
  }

  void add_copies(const std::vector<SlotLife>& lives, EventRuns& runs) const {
    const auto bytes_of = [this](const SlotLife& life) {
      const ir::Lane& lane = schedule_.lane(schedule_.task(life.written_by).lane);
      return scheduler::costs_on(costs_, life.stage, lane.device).parameter_bytes;
    };
    runs.start_run(lives.size());
    for (const SlotLife& life : lives) {
      runs.take(span(life.written_by).start, MemoryKind::Slots, bytes_of(life));
    }
    runs.start_run(lives.size());
    for (const SlotLife& life : lives) {
      runs.give(span(life.written_by).start, span(life.last_use).end, MemoryKind::Slots,
                bytes_of(life));
    }
  }

  /// When a message begins and ends to be held, seen from the tasks that its edges join: on the
  /// sender from the end of the pass that makes it, on the receiver from the start of the send to
  /// the end of the pass that uses it.
  void find_ends_of_messages() {
    message_begin_.resize(schedule_.tasks.size());
    message_end_.resize(schedule_.tasks.size());
    for (size_t i = 0; i < schedule_.tasks.size(); ++i) {
      message_begin_[i] = timeline_.spans[i].start;
      message_end_[i] = timeline_.spans[i].end;
    }
    for (const ir::Edge& edge : schedule_.edges) {
      const ir::Task& from = schedule_.task(edge.from);
      const ir::Task& to = schedule_.task(edge.to);
      const bool is_sent = to.kind() == ir::TaskKind::Send && is_pass_of_message(from, to);
      const bool is_used = from.kind() == ir::TaskKind::Receive && is_pass_of_message(to, from);
      if (is_sent || is_transfer(from, to)) {
        Nanos& begin = message_begin_[index_of(edge.to)];
        begin = std::min(begin, is_sent ? span(edge.from).end : span(edge.from).start);
      } else if (is_used) {
        Nanos& end = message_end_[index_of(edge.from)];
        end = std::max(end, span(edge.to).end);
      }
    }
  }

  [[nodiscard]] static bool is_transfer(const ir::Task& from, const ir::Task& to) {
    const auto* send = std::get_if<ir::Send>(&from.payload);
    const auto* receive = std::get_if<ir::Receive>(&to.payload);
    return send != nullptr && receive != nullptr && send->peer == to.stage &&
           receive->peer == from.stage && send->micro_batch == receive->micro_batch &&
           send->pass == receive->pass;
  }

  /// Whether `pass` makes or uses `message`; other edges only say who waits for whom.
  [[nodiscard]] static bool is_pass_of_message(const ir::Task& pass, const ir::Task& message) {
    return ir::weights_read(pass) != nullptr && pass.stage == message.stage &&
           *ir::micro_batch_of(pass) == *ir::micro_batch_of(message);
  }

  void walk_message_lane(const ir::Lane& lane, EventRuns& runs) const {
    const auto bytes_of = [this](TaskId id) {
      const ir::Task& task = schedule_.task(id);
      const auto* send = std::get_if<ir::Send>(&task.payload);
      const Bytes bytes = send != nullptr ? send->bytes : std::get<ir::Receive>(task.payload).bytes;
      return std::max(bytes, Bytes{0});  // unknown: 0
    };
    runs.start_run(lane.order.size());
    for (const TaskId id : lane.order) {
      runs.take(message_begin_[index_of(id)], MemoryKind::Buffers, bytes_of(id));
    }
    runs.start_run(lane.order.size());
    for (const TaskId id : lane.order) {
      runs.give(message_begin_[index_of(id)], message_end_[index_of(id)], MemoryKind::Buffers,
                bytes_of(id));
    }
  }

  const ir::Schedule& schedule_;
  const ir::Timeline& timeline_;
  const scheduler::CostModel& costs_;
  std::vector<MemoryBytes> always_;                  ///< by DeviceId
  std::vector<std::vector<const ir::Lane*>> lanes_;  ///< by DeviceId
  std::vector<std::vector<SlotLife>> lives_;         ///< by DeviceId, in the order of writing
  std::vector<Nanos> held_since_;                    ///< by place
  std::vector<bool> is_recomputed_;                  ///< by place; empty: none is
  std::vector<Nanos> message_begin_;                 ///< by TaskId
  std::vector<Nanos> message_end_;                   ///< by TaskId
};

}  // namespace

void for_each_device(const ir::Schedule& schedule,
                     const ir::Timeline& timeline,
                     const scheduler::CostModel& costs,
                     const TakeEvents& take) {
  Collector(schedule, timeline, costs).collect(take);
}

}  // namespace xpipe::simulator
