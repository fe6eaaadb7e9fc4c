#include "scheduler/all_reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>

#include "ir/status.h"
#include "scheduler/rounding.h"

namespace xpipe::scheduler {

namespace {

using ir::Bytes;
using ir::DeviceId;
using ir::Nanos;

/// bytes * count / parts over `bandwidth`.
Nanos wire_time(Bytes bytes, std::uint32_t count, std::uint32_t parts, double bandwidth) {
  const Bytes all = capped_product(bytes, count);
  return all == kTooLarge ? kTooLarge : scale_half_up(all, kNanosPerSecond, parts, bandwidth);
}

const LinkCosts& link_between(const CostModel& costs, DeviceId from, DeviceId to) {
  const LinkCosts* link = find_link_costs(costs, from, to);
  XPIPE_CHECK(link != nullptr) << "no link " << ir::index_of(from) << ">" << ir::index_of(to);
  return *link;
}

}  // namespace

DevicePairs all_reduce_pairs(ir::AllReduceKind kind, const std::vector<DeviceId>& replicas) {
  DevicePairs pairs;
  const std::size_t count = replicas.size();
  for (std::size_t i = 0; i < count && count > 1; ++i) {
    if (kind == ir::AllReduceKind::Ring) {
      pairs.emplace(replicas[i], replicas[(i + 1) % count]);
    }
    for (std::size_t j = 0; j < count && kind == ir::AllReduceKind::Tree; ++j) {
      if (i != j) {
        pairs.emplace(replicas[i], replicas[j]);
      }
    }
  }
  return pairs;
}

Nanos all_reduce_time(ir::AllReduceKind kind,
                      const CostModel& costs,
                      const std::vector<DeviceId>& replicas,
                      Bytes bytes) {
  const auto count = static_cast<std::uint32_t>(replicas.size());
  if (count < 2) {
    return 0;
  }
  const bool ring = kind == ir::AllReduceKind::Ring;
  const std::uint32_t hops = ring ? 2 * (count - 1) : 2 * std::bit_width(count - 1);
  // The bytes that each link carries in all, as a fraction of `bytes`.
  const std::uint32_t sent = ring ? 2 * (count - 1) : 2;
  const std::uint32_t parts = ring ? count : 1;
  Nanos latency = 0;
  Nanos slowest = 0;
  std::map<ChannelId, std::uint32_t> crossing;
  for (const auto& [from, to] : all_reduce_pairs(kind, replicas)) {
    const LinkCosts& link = link_between(costs, from, to);
    latency = std::max(latency, link.spec.latency);
    if (link.spec.bandwidth_bytes_per_s) {
      slowest = std::max(slowest, wire_time(bytes, sent, parts, *link.spec.bandwidth_bytes_per_s));
    }
    for (const ChannelId channel : link.channels) {
      ++crossing[channel];
    }
  }
  for (const auto& [channel, links] : crossing) {
    const auto& bandwidth = costs.channels[ir::index_of(channel)].bandwidth_bytes_per_s;
    if (ring && bandwidth) {
      slowest = std::max(slowest, wire_time(bytes, sent * links, parts, *bandwidth));
    }
  }
  return capped_sum(capped_product(latency, hops), slowest);
}

}  // namespace xpipe::scheduler
