#include "scheduler/communication_pass.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace xpipe::scheduler {

namespace {

using ir::DeviceId;
using ir::index_of;
using ir::LaneId;
using ir::LaneKind;
using ir::MicroBatch;
using ir::Pass;
using ir::StageId;
using ir::Task;
using ir::TaskId;
using ir::TaskKind;

constexpr TaskId kNone{0xffffffffU};

/// What a compute task hands on: the activations of a forward, the input
/// gradient of a backward.
std::optional<Pass> hands_on(const Task& task) {
  switch (task.kind()) {
    case TaskKind::Forward:
      return Pass::Forward;
    case TaskKind::Backward:
    case TaskKind::BackwardInput:
      return Pass::Backward;
    case TaskKind::BackwardWeight:
    case TaskKind::Recompute:
    case TaskKind::Predict:
    case TaskKind::Step:
    case TaskKind::Stash:
    case TaskKind::Release:
    case TaskKind::Send:
    case TaskKind::Receive:
    case TaskKind::AllReduce:
      return std::nullopt;
  }
  return std::nullopt;
}

struct Target {
  StageId stage{};
  ir::Bytes bytes = 0;
};

class Builder {
 public:
  Builder(const StageGraph& graph, ir::Schedule& schedule)
      : schedule_(schedule),
        micro_batches_(static_cast<std::size_t>(schedule.micro_batches) * schedule.mini_batches) {
    const std::size_t stages = schedule.stages.size();
    for (int pass = 0; pass < 2; ++pass) {
      targets_[pass].resize(stages);
      compute_task_[pass].assign(stages * micro_batches_, kNone);
    }
    for (const StageLink& link : graph.links) {
      if (device_of(link.from) != device_of(link.to)) {
        targets_[0][index_of(link.from)].push_back({link.to, link.bytes});
        targets_[1][index_of(link.to)].push_back({link.from, link.bytes});
      }
    }
  }

  void add_compute(const ComputeLanes& compute) {
    std::size_t total = 0;
    for (std::size_t d = 0; d < compute.devices.size(); ++d) {
      const std::vector<Task>& tasks = compute.devices[d];
      total += tasks.size();
      for (const Task& task : tasks) {
        if (const auto pass = hands_on(task)) {
          total += 2 * targets_[static_cast<int>(*pass)][index_of(task.stage)].size();
        }
      }
    }
    schedule_.tasks.reserve(total);
    for (std::size_t d = 0; d < compute.devices.size(); ++d) {
      const DeviceId device{static_cast<std::uint16_t>(d)};
      const LaneId lane = add_lane(LaneKind::Compute, device, device);
      schedule_.lanes.back().order.reserve(compute.devices[d].size());
      for (const Task& task : compute.devices[d]) {
        const TaskId id = add_task(lane, task.stage, task.payload);
        if (const auto pass = hands_on(task)) {
          compute_task(*pass, task.stage, *ir::micro_batch_of(task)) = id;
        }
      }
    }
  }

  /// One send and one receive lane per direction, sorted by (from, to).
  void add_messages() {
    for (std::uint32_t d = 0; d < schedule_.devices; ++d) {
      std::map<DeviceId, std::vector<Message>> by_receiver;
      for (const TaskId producer : schedule_.lanes[d].order) {
        const Task& task = schedule_.task(producer);
        const auto pass = hands_on(task);
        if (!pass) {
          continue;
        }
        for (const Target& to : targets_[static_cast<int>(*pass)][index_of(task.stage)]) {
          const TaskId consumer = compute_task(*pass, to.stage, *ir::micro_batch_of(task));
          if (consumer != kNone) {
            by_receiver[device_of(to.stage)].push_back({producer, consumer, to, *pass});
          }
        }
      }
      for (const auto& [receiver, messages] : by_receiver) {
        add_link(DeviceId{static_cast<std::uint16_t>(d)}, receiver, messages);
      }
    }
    std::sort(schedule_.edges.begin(), schedule_.edges.end());
    schedule_.edges.shrink_to_fit();
    schedule_.lanes.shrink_to_fit();
  }

 private:
  struct Message {
    TaskId producer{};
    TaskId consumer{};
    Target to;
    Pass pass = Pass::Forward;
  };

  [[nodiscard]] DeviceId device_of(StageId stage) const { return schedule_.stage(stage).device; }

  TaskId& compute_task(Pass pass, StageId stage, MicroBatch micro_batch) {
    return compute_task_[static_cast<int>(pass)]
                        [index_of(stage) * micro_batches_ + index_of(micro_batch)];
  }

  LaneId add_lane(LaneKind kind, DeviceId device, DeviceId peer) {
    schedule_.lanes.push_back({kind, device, peer, {}});
    return LaneId(static_cast<std::uint32_t>(schedule_.lanes.size() - 1));
  }

  TaskId add_task(LaneId lane, StageId stage, const ir::Payload& payload) {
    const TaskId id{static_cast<std::uint32_t>(schedule_.tasks.size())};
    schedule_.tasks.push_back({payload, lane, stage});
    schedule_.lanes[index_of(lane)].order.push_back(id);
    return id;
  }

  void add_link(DeviceId from, DeviceId to, const std::vector<Message>& messages) {
    const LaneId send_lane = add_lane(LaneKind::Send, from, to);
    schedule_.lanes.back().order.reserve(messages.size());
    const LaneId receive_lane = add_lane(LaneKind::Receive, to, from);
    schedule_.lanes.back().order.reserve(messages.size());
    for (const Message& message : messages) {
      const Task producer = schedule_.task(message.producer);
      const MicroBatch micro_batch = *ir::micro_batch_of(producer);
      const TaskId send =
          add_task(send_lane, producer.stage,
                   ir::Send{message.to.bytes, micro_batch, message.to.stage, message.pass});
      const TaskId receive =
          add_task(receive_lane, message.to.stage,
                   ir::Receive{message.to.bytes, micro_batch, producer.stage, message.pass});
      schedule_.edges.push_back({message.producer, send});
      schedule_.edges.push_back({send, receive});
      schedule_.edges.push_back({receive, message.consumer});
    }
  }

  ir::Schedule& schedule_;
  std::size_t micro_batches_;
  std::vector<std::vector<Target>> targets_[2];  ///< by Pass, then stage
  std::vector<TaskId> compute_task_[2];          ///< by Pass, then stage * micro-batches + j
};

}  // namespace

void add_lanes_and_communication(const ComputeLanes& compute,
                                 const StageGraph& graph,
                                 ir::Schedule& schedule) {
  Builder builder(graph, schedule);
  builder.add_compute(compute);
  builder.add_messages();
}

}  // namespace xpipe::scheduler
