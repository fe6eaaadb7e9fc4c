#include "simulator/memory.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

#include "ir/status.h"
#include "ir/task.h"
#include "scheduler/ready_tracker.h"
#include "simulator/slot_life.h"

namespace xpipe::simulator {

namespace {

using ir::Bytes;
using ir::index_of;
using ir::Nanos;
using ir::TaskId;
using std::size_t;

/// Bytes held on a device in [begin, end).
struct Block {
  ir::DeviceId device{};
  MemoryKind kind = MemoryKind::Weights;
  Nanos begin = 0;
  Nanos end = 0;
  Bytes bytes = 0;
};

class BlockCollector {
 public:
  BlockCollector(const ir::Schedule& schedule,
                 const ir::Timeline& timeline,
                 const scheduler::CostModel& costs)
      : schedule_(schedule), timeline_(timeline), costs_(costs), graph_(schedule) {}

  std::vector<Block> collect() && {
    add_slots();
    add_gradients();
    add_activations();
    add_buffers();
    return std::move(blocks_);
  }

 private:
  using StageBatch = std::pair<ir::StageId, std::uint32_t>;  ///< with a micro- or mini-batch

  [[nodiscard]] const ir::Span& span(TaskId id) const { return timeline_.spans[index_of(id)]; }

  [[nodiscard]] static TaskId id_of(size_t task) {
    return TaskId(static_cast<std::uint32_t>(task));
  }

  void add(ir::DeviceId device, MemoryKind kind, Nanos begin, Nanos end, Bytes bytes) {
    if (bytes > 0) {
      blocks_.push_back({device, kind, begin, end, bytes});
    }
  }

  [[nodiscard]] ir::DeviceId device_of(ir::StageId stage) const {
    return schedule_.stage(stage).device;
  }

  [[nodiscard]] const scheduler::StageCosts& costs_of(ir::StageId stage) const {
    return costs_.stages[index_of(stage)];
  }

  void add_slots() {
    const std::vector<TaskId> order = scheduler::topological_order(graph_);
    for (const SlotLife& life : slot_lives(schedule_, order)) {
      add(device_of(life.stage), MemoryKind::Slots, span(life.written_by).start,
          span(life.last_use).end, costs_of(life.stage).parameter_bytes);
    }
  }

  void add_gradients() {
    std::map<StageBatch, std::pair<Nanos, Nanos>> accumulators;  // first start, last end
    for (size_t i = 0; i < schedule_.tasks.size(); ++i) {
      const ir::Task& task = schedule_.tasks[i];
      const bool adds =
          task.kind() == ir::TaskKind::Backward || task.kind() == ir::TaskKind::BackwardWeight;
      if (!adds && task.kind() != ir::TaskKind::Step) {
        continue;
      }
      const ir::Span& s = span(id_of(i));
      const auto batch = index_of(ir::mini_batch_of(task, schedule_.micro_batches));
      const auto [entry, is_new] = accumulators.try_emplace({task.stage, batch}, s.start, s.end);
      if (!is_new) {
        entry->second.first = std::min(entry->second.first, s.start);
        entry->second.second = std::max(entry->second.second, s.end);
      }
    }
    for (const auto& [key, life] : accumulators) {
      add(device_of(key.first), MemoryKind::Gradients, life.first, life.second,
          costs_of(key.first).parameter_bytes);
    }
  }

  /// The tasks of one micro-batch on one stage that decide how long its activations stay.
  struct Passes {
    std::optional<TaskId> forward;
    std::optional<TaskId> recompute;
    std::optional<TaskId> backward;  ///< whole, or the input part
    std::optional<TaskId> weight;
  };

  void add_activations() {
    std::map<StageBatch, Passes> passes;
    for (size_t i = 0; i < schedule_.tasks.size(); ++i) {
      const ir::Task& task = schedule_.tasks[i];
      if (ir::weights_read(task) == nullptr) {
        continue;
      }
      Passes& p = passes[{task.stage, index_of(*ir::micro_batch_of(task))}];
      (task.kind() == ir::TaskKind::Forward          ? p.forward
       : task.kind() == ir::TaskKind::Recompute      ? p.recompute
       : task.kind() == ir::TaskKind::BackwardWeight ? p.weight
                                                     : p.backward) = id_of(i);
    }
    for (const auto& [key, p] : passes) {
      const std::optional<TaskId> made = p.recompute.has_value() ? p.recompute : p.forward;
      if (!made.has_value() || !p.backward.has_value()) {
        continue;
      }
      const scheduler::StageCosts& stage = costs_of(key.first);
      const Nanos begin = span(*made).start;
      const Bytes kept = p.weight.has_value() ? stage.saved_for_weight_bytes : 0;
      add(device_of(key.first), MemoryKind::Activations, begin, span(*p.backward).end,
          stage.saved_bytes - kept);
      if (p.weight.has_value()) {
        add(device_of(key.first), MemoryKind::Activations, begin, span(*p.weight).end, kept);
      }
    }
  }

  void add_buffers() {
    for (size_t i = 0; i < schedule_.tasks.size(); ++i) {
      const TaskId id = id_of(i);
      const ir::Task& task = schedule_.tasks[i];
      const ir::Lane& lane = schedule_.lane(task.lane);
      if (const auto* send = std::get_if<ir::Send>(&task.payload)) {
        Nanos begin = span(id).start;
        for (const TaskId before : graph_.predecessors(id)) {
          if (schedule_.task(before).lane != task.lane) {
            begin = std::min(begin, span(before).end);
          }
        }
        add(lane.device, MemoryKind::Buffers, begin, span(id).end, send->bytes);
      } else if (const auto* receive = std::get_if<ir::Receive>(&task.payload)) {
        Nanos begin = span(id).start;
        for (const TaskId before : graph_.predecessors(id)) {
          if (schedule_.task(before).kind() == ir::TaskKind::Send) {
            begin = std::min(begin, span(before).start);
          }
        }
        Nanos end = span(id).end;
        for (const TaskId after : graph_.successors(id)) {
          if (schedule_.task(after).lane != task.lane) {
            end = std::max(end, span(after).end);
          }
        }
        add(lane.device, MemoryKind::Buffers, begin, end, receive->bytes);
      }
    }
  }

  const ir::Schedule& schedule_;
  const ir::Timeline& timeline_;
  const scheduler::CostModel& costs_;
  scheduler::TaskGraph graph_;
  std::vector<Block> blocks_;
};

/// A change at a time. Phases: what ends, what starts, what has started at this very instant and
/// ends.
struct Delta {
  Nanos time = 0;
  int phase = 0;
  MemoryKind kind = MemoryKind::Weights;
  Bytes bytes = 0;
};

Bytes sum_of(const MemoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), Bytes{0});
}

DeviceMemory replay_deltas(const MemoryBytes& always, std::vector<Delta> deltas) {
  std::ranges::stable_sort(deltas, {}, [](const Delta& d) { return std::pair(d.time, d.phase); });
  DeviceMemory memory;
  MemoryBytes now = always;
  memory.curve.push_back({0, now});
  memory.peak_by_kind = now;
  memory.peak = sum_of(now);
  Bytes sum = memory.peak;
  for (size_t i = 0; i < deltas.size(); ++i) {
    const Delta& delta = deltas[i];
    Bytes& held = now[static_cast<size_t>(delta.kind)];
    held += delta.bytes;
    sum += delta.bytes;
    const bool is_last_of_phase = i + 1 == deltas.size() || deltas[i + 1].time != delta.time ||
                                  deltas[i + 1].phase != delta.phase;
    if (is_last_of_phase) {
      for (size_t kind = 0; kind < kMemoryKinds; ++kind) {
        memory.peak_by_kind[kind] = std::max(memory.peak_by_kind[kind], now[kind]);
      }
      if (sum > memory.peak) {
        memory.peak = sum;
        memory.peak_time = delta.time;
      }
    }
    if (i + 1 == deltas.size() || deltas[i + 1].time != delta.time) {
      if (memory.curve.back().time == delta.time) {
        memory.curve.back().bytes = now;
      } else if (memory.curve.back().bytes != now) {
        memory.curve.push_back({delta.time, now});
      }
    }
  }
  XPIPE_CHECK(now == always) << "memory was taken and not given back";
  return memory;
}

std::set<ir::StageId> stages_that_predict(const ir::Schedule& schedule) {
  std::set<ir::StageId> stages;
  for (const ir::Task& task : schedule.tasks) {
    if (task.kind() == ir::TaskKind::Predict) {
      stages.insert(task.stage);
    }
  }
  return stages;
}

}  // namespace

std::string_view memory_kind_name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::Weights:
      return "weights";
    case MemoryKind::Slots:
      return "slots";
    case MemoryKind::Gradients:
      return "gradients";
    case MemoryKind::Optimizer:
      return "optimizer";
    case MemoryKind::Activations:
      return "activations";
    case MemoryKind::Buffers:
      return "buffers";
  }
  return "unknown";
}

std::vector<DeviceMemory> memory_over_time(const ir::Schedule& schedule,
                                           const ir::Timeline& timeline,
                                           const scheduler::CostModel& costs) {
  std::vector<MemoryBytes> always(schedule.devices);
  for (const ir::StageId stage : stages_that_predict(schedule)) {
    always[index_of(schedule.stage(stage).device)][static_cast<size_t>(MemoryKind::Optimizer)] +=
        costs.stages[index_of(stage)].prediction_bytes;
  }
  for (size_t k = 0; k < schedule.stages.size(); ++k) {
    MemoryBytes& bytes = always[index_of(schedule.stages[k].device)];
    bytes[static_cast<size_t>(MemoryKind::Weights)] += costs.stages[k].parameter_bytes;
    bytes[static_cast<size_t>(MemoryKind::Optimizer)] += costs.stages[k].optimizer_bytes;
  }
  std::vector<std::vector<Delta>> deltas(schedule.devices);
  for (const Block& block : BlockCollector(schedule, timeline, costs).collect()) {
    std::vector<Delta>& of_device = deltas[index_of(block.device)];
    of_device.push_back({block.begin, 1, block.kind, block.bytes});
    of_device.push_back({block.end, block.end > block.begin ? 0 : 2, block.kind, -block.bytes});
  }
  std::vector<DeviceMemory> devices;
  devices.reserve(deltas.size());
  for (size_t d = 0; d < deltas.size(); ++d) {
    devices.push_back(replay_deltas(always[d], std::move(deltas[d])));
  }
  return devices;
}

std::vector<std::uint32_t> peak_in_flight(const ir::Schedule& schedule) {
  std::vector<std::uint32_t> peak(schedule.stages.size(), 0);
  std::vector<std::uint32_t> now(schedule.stages.size(), 0);
  for (const ir::Lane& lane : schedule.lanes) {
    for (const TaskId id : lane.order) {
      const ir::Task& task = schedule.task(id);
      const size_t k = index_of(task.stage);
      if (task.kind() == ir::TaskKind::Forward) {
        peak[k] = std::max(peak[k], ++now[k]);
      } else if (task.kind() == ir::TaskKind::Backward ||
                 task.kind() == ir::TaskKind::BackwardInput) {
        --now[k];
      }
    }
  }
  return peak;
}

}  // namespace xpipe::simulator
