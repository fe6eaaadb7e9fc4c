#include "scheduler/link_model.h"

#include <algorithm>
#include <map>

#include "ir/status.h"

namespace xpipe::scheduler {

using ir::DeviceId;
using ir::index_of;

LinkChannels::LinkChannels(const CostModel& costs, const ir::Schedule& schedule)
    : by_lane_(schedule.lanes.size()) {
  std::map<std::pair<DeviceId, DeviceId>, ChannelId> by_pair;
  for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
    const ir::Lane& lane = schedule.lanes[i];
    if (lane.kind != ir::LaneKind::Send) {
      continue;
    }
    const ir::LinkSpec* link = find_link(costs, lane.device, lane.peer);
    if (link == nullptr || link->duplex != ir::Duplex::Half) {
      continue;
    }
    const auto [entry, is_new] =
        by_pair.try_emplace(std::minmax(lane.device, lane.peer),
                            ChannelId(static_cast<std::uint32_t>(channels_.size())));
    if (is_new) {
      channels_.emplace_back();
    }
    by_lane_[i] = entry->second;
  }
}

std::optional<ChannelId> LinkChannels::channel_of(ir::LaneId lane) const {
  return by_lane_[index_of(lane)];
}

void LinkChannels::request(ChannelId channel, ir::TaskId send, ir::Nanos ready) {
  channels_[index_of(channel)].line.emplace(ready, send);
}

std::optional<ir::TaskId> LinkChannels::grant(ChannelId channel) {
  Channel& c = channels_[index_of(channel)];
  if (c.busy || c.line.empty()) {
    return std::nullopt;
  }
  const ir::TaskId send = c.line.top().second;
  c.line.pop();
  c.busy = true;
  return send;
}

void LinkChannels::release(ChannelId channel) {
  XPIPE_CHECK(channels_[index_of(channel)].busy) << "channel " << index_of(channel);
  channels_[index_of(channel)].busy = false;
}

}  // namespace xpipe::scheduler
