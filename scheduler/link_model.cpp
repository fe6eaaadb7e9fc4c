#include "scheduler/link_model.h"

#include <algorithm>

#include "ir/status.h"

namespace xpipe::scheduler {

using ir::index_of;

LinkChannels::LinkChannels(const CostModel& costs, const ir::Schedule& schedule)
    : by_lane_(schedule.lanes.size()), channels_(costs.channels.size()) {
  for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
    const ir::Lane& lane = schedule.lanes[i];
    if (lane.kind != ir::LaneKind::Send) {
      continue;
    }
    if (const LinkCosts* link = find_link_costs(costs, lane.device, lane.peer)) {
      XPIPE_CHECK(link->spec.duplex == ir::Duplex::Full || !link->channels.empty())
          << "the half-duplex link of lane " << i << " has no channel; see check_costs()";
      by_lane_[i] = link->channels;
    }
  }
}

std::span<const ChannelId> LinkChannels::channels_of(ir::LaneId lane) const {
  return by_lane_[index_of(lane)];
}

void LinkChannels::request(ir::LaneId lane, ir::TaskId send, ir::Nanos ready) {
  for (const ChannelId channel : channels_of(lane)) {
    channels_[index_of(channel)].waiting.push({.ready = ready, .send = send, .lane = lane});
  }
}

bool LinkChannels::is_next(ir::LaneId lane) const {
  return std::ranges::all_of(channels_of(lane), [&](ChannelId channel) {
    const Line& line = channels_[index_of(channel)];
    return !line.waiting.empty() && line.waiting.top().lane == lane;
  });
}

std::optional<ir::TaskId> LinkChannels::grant(ChannelId channel) {
  const Line& line = channels_[index_of(channel)];
  if (line.busy || line.waiting.empty()) {
    return std::nullopt;
  }
  const Request first = line.waiting.top();
  const auto is_free = [&](ChannelId c) { return !channels_[index_of(c)].busy; };
  if (!is_next(first.lane) || !std::ranges::all_of(channels_of(first.lane), is_free)) {
    return std::nullopt;
  }
  for (const ChannelId c : channels_of(first.lane)) {
    channels_[index_of(c)].busy = true;
    channels_[index_of(c)].waiting.pop();
  }
  return first.send;
}

void LinkChannels::release(ir::LaneId lane) {
  for (const ChannelId channel : channels_of(lane)) {
    XPIPE_CHECK(channels_[index_of(channel)].busy) << "channel " << index_of(channel);
    channels_[index_of(channel)].busy = false;
  }
}

}  // namespace xpipe::scheduler
