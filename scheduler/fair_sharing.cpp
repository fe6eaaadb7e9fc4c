#include "scheduler/fair_sharing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "ir/status.h"

namespace xpipe::scheduler {

namespace {

using ir::index_of;
using std::size_t;

__extension__ using Wide = unsigned __int128;

constexpr int kRateBits = 8;
/// Stands for an infinite bandwidth: more than any link has, and a channel's sum of them fits.
constexpr std::int64_t kMost = std::int64_t{1} << 61;

std::int64_t rate_of(const std::optional<double>& bandwidth) {
  if (!bandwidth.has_value()) {
    return kMost;
  }
  const double rate = std::floor(std::ldexp(*bandwidth, kRateBits));
  return rate >= static_cast<double>(kMost)
             ? kMost
             : std::max<std::int64_t>(1, static_cast<std::int64_t>(rate));
}

}  // namespace

FairSharing::FairSharing(const CostModel& costs, const ir::Schedule& schedule)
    : lanes_(schedule.lanes.size()), channels_(costs.channels.size()) {
  for (size_t c = 0; c < channels_.size(); ++c) {
    channels_[c].capacity = rate_of(costs.channels[c].bandwidth_bytes_per_s);
  }
  for (size_t l = 0; l < lanes_.size(); ++l) {
    const ir::Lane& lane = schedule.lanes[l];
    if (lane.kind == ir::LaneKind::Send) {
      const LinkCosts* link = find_link_costs(costs, lane.device, lane.peer);
      XPIPE_CHECK(link != nullptr) << "no link for lane " << l << "; see check_costs()";
      lanes_[l].channels = link->channels;
      lanes_[l].most = rate_of(link->spec.bandwidth_bytes_per_s);
    }
  }
}

/// How far the rate of `lane` can grow as things stand.
FairSharing::Rate FairSharing::bound_of(const Lane& lane) const {
  Rate bound = lane.most;
  for (const ChannelId c : lane.channels) {
    const Channel& channel = channels_[index_of(c)];
    bound = std::min(bound, channel.left / channel.growing);
  }
  return bound;
}

std::vector<Speed> FairSharing::speeds(const std::vector<ir::LaneId>& lanes) {
  for (const ir::LaneId l : lanes) {
    for (const ChannelId c : lanes_[index_of(l)].channels) {
      channels_[index_of(c)] = {.capacity = channels_[index_of(c)].capacity,
                                .left = channels_[index_of(c)].capacity,
                                .growing = 0};
    }
  }
  for (const ir::LaneId l : lanes) {
    for (const ChannelId c : lanes_[index_of(l)].channels) {
      ++channels_[index_of(c)].growing;
    }
  }
  std::vector<Speed> speeds(lanes.size(), 0);
  std::vector<size_t> growing(lanes.size());
  for (size_t i = 0; i < growing.size(); ++i) {
    growing[i] = i;
  }
  std::vector<size_t> settled;
  while (!growing.empty()) {
    Rate least = std::numeric_limits<Rate>::max();
    for (const size_t i : growing) {
      least = std::min(least, bound_of(lanes_[index_of(lanes[i])]));
    }
    settled.clear();
    std::erase_if(growing, [&](size_t i) {
      const bool is_settled = bound_of(lanes_[index_of(lanes[i])]) == least;
      if (is_settled) {
        settled.push_back(i);
      }
      return is_settled;
    });
    for (const size_t i : settled) {
      const Lane& lane = lanes_[index_of(lanes[i])];
      const auto most = static_cast<Wide>(lane.most);
      const Wide speed =
          ((static_cast<Wide>(least) << kSpeedBits) + most - 1) / most;  // as slowed()
      speeds[i] = std::max<Speed>(1, static_cast<Speed>(speed));
      for (const ChannelId c : lane.channels) {
        channels_[index_of(c)].left -= least;
        --channels_[index_of(c)].growing;
      }
    }
  }
  return speeds;
}

}  // namespace xpipe::scheduler
