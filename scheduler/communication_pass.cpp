#include "scheduler/communication_pass.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/exchange_pass.h"

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

/// What a compute task hands on: the activations of a forward, the input gradient of a backward.
struct Handed {
  Pass pass = Pass::Forward;
  MicroBatch micro_batch{};
};

std::optional<Handed> handed_on(const Task& task) {
  switch (task.kind()) {
    case TaskKind::Forward:
      return Handed{Pass::Forward, std::get<ir::Forward>(task.payload).micro_batch};
    case TaskKind::Backward:
      return Handed{Pass::Backward, std::get<ir::Backward>(task.payload).micro_batch};
    case TaskKind::BackwardInput:
      return Handed{Pass::Backward, std::get<ir::BackwardInput>(task.payload).micro_batch};
    case TaskKind::BackwardWeight:
    case TaskKind::Recompute:
    case TaskKind::Predict:
    case TaskKind::Step:
    case TaskKind::Stash:
    case TaskKind::Release:
    case TaskKind::Send:
    case TaskKind::Receive:
    case TaskKind::AllReduce:
    case TaskKind::SumTied:
    case TaskKind::ClipNorm:
      return std::nullopt;
  }
  return std::nullopt;
}

/// A stage on another device that wants what a stage hands on.
struct Target {
  StageId stage{};
  /// A place in the list of devices that the sender sends to; not used with replicas, where it
  /// depends on the micro-batch.
  std::uint32_t receiver = 0;
  ir::Bytes bytes = 0;
};

/// Ids count the compute tasks, by device and position, then the messages, by link and order, each
/// send with its receive behind it. So edges are found in the order in which they are stored, those
/// of producers by a walk over the compute tasks and the others by one over the messages, and
/// nothing is sorted. With replicas the receiver is the device that has the micro-batch, and the
/// edges are sorted at the end.
class Builder {
 public:
  Builder(const StageGraph& graph, ir::Schedule& schedule)
      : schedule_(schedule),
        micro_batches_(static_cast<std::size_t>(schedule.micro_batches) * schedule.mini_batches),
        receivers_(schedule.devices),
        place_of_receiver_(schedule.devices, 0) {
    const std::size_t stages = schedule.stages.size();
    for (const ir::StageInfo& stage : schedule.stages) {
      replicated_ |= stage.is_replicated();
    }
    for (int pass = 0; pass < 2; ++pass) {
      targets_[pass].resize(stages);
      compute_task_[pass].assign(stages * micro_batches_, kNone);
    }
    for (const StageLink& link : graph.links) {
      if (replicated_ || device_of(link.from) != device_of(link.to)) {
        add_target(Pass::Forward, link.from, link.to, link.bytes);
        add_target(Pass::Backward, link.to, link.from, link.bytes);
      }
    }
    sort_targets();
  }

  void add_compute(const ComputeLanes& compute) {
    reserve(compute);
    for (std::size_t d = 0; d < compute.devices.size(); ++d) {
      const DeviceId device{static_cast<std::uint16_t>(d)};
      const LaneId lane = add_lane(LaneKind::Compute, device, device, compute.devices[d].size());
      std::vector<TaskId>& order = schedule_.lanes.back().order;
      for (const Task& task : compute.devices[d]) {
        const TaskId id = add_task(order, {task.payload, lane, task.stage});
        if (const auto handed = handed_on(task)) {
          compute_task(*handed, task.stage) = id;
        }
      }
    }
  }

  /// One send and one receive lane per direction, sorted by (from, to).
  void add_messages() {
    auto send = static_cast<std::uint32_t>(schedule_.tasks.size());
    for (std::uint32_t d = 0; d < schedule_.devices; ++d) {
      add_messages_from(d);
    }
    for (const TaskId consumer : consumers_) {
      schedule_.edges.push_back({TaskId{send}, TaskId{send + 1}});
      schedule_.edges.push_back({TaskId{send + 1}, consumer});
      send += 2;
    }
    if (join_exchanges(schedule_) || replicated_) {
      std::sort(schedule_.edges.begin(), schedule_.edges.end());
      schedule_.edges.erase(std::unique(schedule_.edges.begin(), schedule_.edges.end()),
                            schedule_.edges.end());
    }
    schedule_.tasks.shrink_to_fit();
    schedule_.edges.shrink_to_fit();
    schedule_.lanes.shrink_to_fit();
  }

 private:
  struct Message {
    TaskId consumer{};
    StageId from{};
    Handed handed;
    const Target* to = nullptr;
  };

  [[nodiscard]] DeviceId device_of(StageId stage) const { return schedule_.stage(stage).device(); }

  std::vector<Target>& targets(const Handed& handed, StageId stage) {
    return targets_[static_cast<int>(handed.pass)][index_of(stage)];
  }

  TaskId& compute_task(const Handed& handed, StageId stage) {
    return compute_task_[static_cast<int>(handed.pass)]
                        [index_of(stage) * micro_batches_ + index_of(handed.micro_batch)];
  }

  void add_target(Pass pass, StageId from, StageId to, ir::Bytes bytes) {
    targets({pass, {}}, from).push_back({to, 0, bytes});
    for (const DeviceId own : schedule_.stage(from).devices) {
      for (const DeviceId other : schedule_.stage(to).devices) {
        if (own != other) {
          receivers_[index_of(own)].push_back(other);
        }
      }
    }
  }

  /// Each device's receivers, and each stage's targets by receiver.
  void sort_targets() {
    for (std::vector<DeviceId>& receivers : receivers_) {
      std::sort(receivers.begin(), receivers.end());
      receivers.erase(std::unique(receivers.begin(), receivers.end()), receivers.end());
    }
    if (replicated_) {
      return;
    }
    for (std::vector<std::vector<Target>>& by_stage : targets_) {
      for (std::size_t k = 0; k < by_stage.size(); ++k) {
        const DeviceId own = schedule_.stages[k].device();
        const std::vector<DeviceId>& receivers = receivers_[index_of(own)];
        for (Target& to : by_stage[k]) {
          const auto place =
              std::lower_bound(receivers.begin(), receivers.end(), device_of(to.stage));
          to.receiver = static_cast<std::uint32_t>(place - receivers.begin());
        }
        std::stable_sort(by_stage[k].begin(), by_stage[k].end(),
                         [](const Target& a, const Target& b) { return a.receiver < b.receiver; });
      }
    }
  }

  LaneId add_lane(LaneKind kind, DeviceId device, DeviceId peer, std::size_t tasks) {
    schedule_.lanes.push_back({kind, device, peer, {}});
    schedule_.lanes.back().order.reserve(tasks);
    return LaneId(static_cast<std::uint32_t>(schedule_.lanes.size() - 1));
  }

  /// Room for all tasks and edges: exact where every stage hands on every micro-batch.
  void reserve(const ComputeLanes& compute) {
    std::size_t tasks = 0;
    for (const std::vector<Task>& device : compute.devices) {
      tasks += device.size();
    }
    std::size_t messages = 0;
    for (const std::vector<std::vector<Target>>& by_stage : targets_) {
      for (const std::vector<Target>& targets : by_stage) {
        messages += targets.size() * micro_batches_;
      }
    }
    schedule_.tasks.reserve(tasks + 2 * messages);
    schedule_.edges.reserve(3 * messages);
    consumers_.reserve(messages);
  }

  /// `order`: of the task's lane.
  TaskId add_task(std::vector<TaskId>& order, const Task& task) {
    const TaskId id{static_cast<std::uint32_t>(schedule_.tasks.size())};
    schedule_.tasks.push_back(task);
    order.push_back(id);
    return id;
  }

  void add_messages_from(std::uint32_t d) {
    collect_messages(d);
    const DeviceId from{static_cast<std::uint16_t>(d)};
    next_send_.clear();
    for (std::size_t r = 0; r < receivers_[d].size(); ++r) {
      next_send_.push_back(static_cast<std::uint32_t>(schedule_.tasks.size()));
      if (!messages_[r].empty()) {
        add_link(from, receivers_[d][r], messages_[r]);
      }
    }
    for (const auto& [producer, receiver] : senders_) {
      schedule_.edges.push_back({producer, TaskId{next_send_[receiver]}});
      next_send_[receiver] += 2;
    }
  }

  /// Fills `messages_` and `senders_` with what device `d` sends, in the order of its producers.
  void collect_messages(std::uint32_t d) {
    messages_.resize(std::max(messages_.size(), receivers_[d].size()));
    for (std::vector<Message>& messages : messages_) {
      messages.clear();
    }
    senders_.clear();
    for (std::size_t r = 0; replicated_ && r < receivers_[d].size(); ++r) {
      place_of_receiver_[index_of(receivers_[d][r])] = static_cast<std::uint32_t>(r);
    }
    for (const TaskId producer : schedule_.lanes[d].order) {
      const Task& task = schedule_.task(producer);
      const auto handed = handed_on(task);
      if (!handed) {
        continue;
      }
      for (const Target& to : targets(*handed, task.stage)) {
        const TaskId consumer = compute_task(*handed, to.stage);
        if (consumer == kNone) {
          continue;
        }
        std::uint32_t receiver = to.receiver;
        if (replicated_) {
          const std::uint32_t device = index_of(schedule_.task(consumer).lane);  // its compute lane
          if (device == d) {
            continue;
          }
          receiver = place_of_receiver_[device];
        }
        messages_[receiver].push_back({consumer, task.stage, *handed, &to});
        senders_.emplace_back(producer, receiver);
      }
    }
  }

  void add_link(DeviceId from, DeviceId to, const std::vector<Message>& messages) {
    const LaneId send_lane = add_lane(LaneKind::Send, from, to, messages.size());
    const LaneId receive_lane = add_lane(LaneKind::Receive, to, from, messages.size());
    std::vector<TaskId>& sends = schedule_.lanes[index_of(send_lane)].order;
    std::vector<TaskId>& receives = schedule_.lanes[index_of(receive_lane)].order;
    for (const auto& [consumer, stage, handed, target] : messages) {
      const auto& [pass, micro_batch] = handed;
      add_task(sends,
               {ir::Send{target->bytes, micro_batch, target->stage, pass}, send_lane, stage});
      add_task(receives,
               {ir::Receive{target->bytes, micro_batch, stage, pass}, receive_lane, target->stage});
      consumers_.push_back(consumer);
    }
  }

  ir::Schedule& schedule_;
  std::size_t micro_batches_;
  bool replicated_ = false;                       ///< some stage is
  std::vector<std::vector<DeviceId>> receivers_;  ///< by DeviceId: whom it sends to, sorted
  std::vector<std::vector<Target>> targets_[2];   ///< by Pass, then stage; sorted by receiver
  std::vector<TaskId> compute_task_[2];           ///< by Pass, then stage * micro-batches + j
  std::vector<TaskId> consumers_;                 ///< of all messages so far

  // Of the device whose messages are being added:
  std::vector<std::uint32_t> place_of_receiver_;           ///< by DeviceId; with replicas
  std::vector<std::vector<Message>> messages_;             ///< by receiver
  std::vector<std::pair<TaskId, std::uint32_t>> senders_;  ///< (producer, receiver)
  std::vector<std::uint32_t> next_send_;                   ///< by receiver: the next TaskId
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
