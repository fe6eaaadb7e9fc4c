#include "scheduler/link_costs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/rounding.h"

namespace xpipe::scheduler {

namespace {

using ir::DeviceId;
using ir::index_of;
using ir::SharedLinkId;

enum class Direction : std::uint8_t { Forward, Back };

/// A link of the cluster, as seen from the sender.
struct Way {
  const ir::LinkSpec* spec = nullptr;
  std::vector<SharedLinkId> via;  ///< from the sender to the receiver
};

class LinkBuilder {
 public:
  LinkBuilder(CostModel& costs, const ir::Cluster& cluster) : costs_(costs), cluster_(cluster) {
    for (const ir::Link& link : cluster.links) {
      by_pair_[{link.from, link.to}] = &link;
      if (link.symmetric) {
        by_pair_[{link.to, link.from}] = &link;
      }
    }
  }

  /// Whether the cluster has such a link.
  bool add(DeviceId from, DeviceId to) {
    const Way way = way_of(from, to);
    if (way.spec == nullptr) {
      return false;
    }
    LinkCosts link{.from = from, .to = to, .spec = *way.spec, .channels = {}};
    for (std::size_t i = 0; i < way.via.size(); ++i) {
      const ir::LinkSpec& shared = cluster_.shared_links[index_of(way.via[i])].spec;
      narrow(link.spec.bandwidth_bytes_per_s, shared.bandwidth_bytes_per_s);
      link.spec.latency = capped_sum(link.spec.latency, shared.latency);
      link.channels.push_back(channel(way.via[i], direction(from, to, i, way.via.size())));
    }
    std::ranges::sort(link.channels);
    costs_.links.push_back(std::move(link));
    return true;
  }

 private:
  [[nodiscard]] Way way_of(DeviceId from, DeviceId to) const {
    const auto listed = by_pair_.find({from, to});
    if (listed == by_pair_.end()) {
      if (!cluster_.default_link) {
        return {};
      }
      Way way{.spec = &*cluster_.default_link, .via = cluster_.default_via};
      reverse_if(from > to, way.via);
      return way;
    }
    Way way{.spec = &listed->second->spec, .via = listed->second->via};
    reverse_if(listed->second->from != from, way.via);
    return way;
  }

  static void reverse_if(bool condition, std::vector<SharedLinkId>& via) {
    if (condition) {
      std::ranges::reverse(via);
    }
  }

  static Direction direction(DeviceId from, DeviceId to, std::size_t place, std::size_t count) {
    if (count >= 2 && (place == 0 || place + 1 == count)) {
      return place == 0 ? Direction::Forward : Direction::Back;
    }
    return from < to ? Direction::Forward : Direction::Back;
  }

  static void narrow(std::optional<double>& bandwidth, const std::optional<double>& other) {
    if (other && (!bandwidth || *other < *bandwidth)) {
      bandwidth = other;
    }
  }

  ChannelId channel(SharedLinkId id, Direction direction) {
    const ir::SharedLink& shared = cluster_.shared_links[index_of(id)];
    const bool half = shared.spec.duplex == ir::Duplex::Half;
    const Direction key = half ? Direction::Forward : direction;
    const auto [entry, is_new] = channels_.try_emplace(
        std::pair(id, key), ChannelId(static_cast<std::uint32_t>(costs_.channels.size())));
    if (is_new) {
      const char* suffix = half ? "" : key == Direction::Forward ? " forward" : " back";
      costs_.channels.push_back({shared.name + suffix, shared.spec.bandwidth_bytes_per_s});
    }
    return entry->second;
  }

  CostModel& costs_;
  const ir::Cluster& cluster_;
  std::map<std::pair<DeviceId, DeviceId>, const ir::Link*> by_pair_;
  std::map<std::pair<SharedLinkId, Direction>, ChannelId> channels_;
};

}  // namespace

ir::Status set_links(CostModel& costs, const DevicePairs& pairs, const ir::Cluster& cluster) {
  costs.links.clear();
  costs.channels.clear();
  costs.sharing = cluster.sharing;
  LinkBuilder builder(costs, cluster);
  ir::Error error{.kind = ir::ErrorKind::BadInput, .diagnostics = {}};
  for (const auto& [from, to] : pairs) {
    if (!builder.add(from, to)) {
      error.diagnostics.push_back(
          {"no-link", "link " + std::to_string(index_of(from)) + ">" + std::to_string(index_of(to)),
           "these devices exchange tensors or gradients and cluster \"" + cluster.name +
               "\" lists no such link; add it to links, or a default_link"});
    }
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  add_half_duplex_channels(costs);
  return {};
}

}  // namespace xpipe::scheduler
