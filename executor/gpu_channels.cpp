#include "executor/gpu_channels.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "ir/text.h"

namespace xpipe::executor {

namespace {

using ir::index_of;
using ir::TaskId;

/// What goes over a channel: as sent, and the sends that the receives are of.
struct Orders {
  std::vector<TaskId> sent;
  std::vector<TaskId> received;
};

/// The send that each receive waits for, by TaskId.
std::vector<TaskId> sends_of_receives(const ir::Schedule& schedule) {
  std::vector<TaskId> sends(schedule.tasks.size());
  for (const ir::Edge& edge : schedule.edges) {
    if (schedule.task(edge.from).kind() == ir::TaskKind::Send &&
        schedule.task(edge.to).kind() == ir::TaskKind::Receive) {
      sends[index_of(edge.to)] = edge.from;
    }
  }
  return sends;
}

ir::Diagnostic crossing(const ir::Schedule& schedule,
                        const GpuChannel& channel,
                        TaskId sent,
                        TaskId received) {
  return {"transfers-cross", "--transport",
          "device " + std::to_string(index_of(channel.from)) + " sends " +
              ir::to_text(schedule.task(sent)) + " where device " +
              std::to_string(index_of(channel.to)) + " receives " +
              ir::to_text(schedule.task(received)) +
              ": the two ends of a transfer between GPUs meet in order, so this schedule cannot be "
              "run over nccl; use --transport gloo"};
}

}  // namespace

ir::Result<std::vector<GpuChannel>> gpu_channels(const ir::Schedule& schedule,
                                                 const RankOfDevice& rank_of) {
  const std::vector<TaskId> sends = sends_of_receives(schedule);
  std::map<GpuChannel, Orders> orders;
  for (const ir::Lane& lane : schedule.lanes) {
    if (lane.kind == ir::LaneKind::Compute || rank_of(lane.device) == rank_of(lane.peer)) {
      continue;
    }
    for (const TaskId task : lane.order) {
      if (lane.kind == ir::LaneKind::Send) {
        orders[{lane.device, lane.peer}].sent.push_back(task);
      } else {
        orders[{lane.peer, lane.device}].received.push_back(sends[index_of(task)]);
      }
    }
  }
  ir::Error error{ir::ErrorKind::Usage, {}};
  std::vector<GpuChannel> channels;
  channels.reserve(orders.size());
  for (const auto& [channel, order] : orders) {
    const auto [sent, received] = std::ranges::mismatch(order.sent, order.received);
    if (sent != order.sent.end() && received != order.received.end()) {
      error.diagnostics.push_back(crossing(schedule, channel, *sent, *received));
    }
    channels.push_back(channel);
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  std::ranges::sort(channels, {}, [](const GpuChannel& channel) {
    return std::tuple(std::min(channel.from, channel.to), std::max(channel.from, channel.to),
                      channel.from);
  });
  return channels;
}

}  // namespace xpipe::executor
