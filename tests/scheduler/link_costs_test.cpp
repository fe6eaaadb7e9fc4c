// From a cluster's links to the cost model's: speeds, latencies and channels.
#include "scheduler/link_costs.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace xpipe::scheduler {
namespace {

using ir::DeviceId;
using ir::Duplex;
using ir::SharedLinkId;

/// Devices 0 and 1 in one machine, 2 and 3 in another; a network card each, a bus in the first.
///
///   0 -.                    .- 2
///      bus -- nic-a -- nic-b
///   1 -'                    '- 3
ir::Cluster two_machines() {
  ir::Cluster cluster;
  cluster.name = "two machines";
  cluster.devices.resize(4);
  cluster.shared_links = {{"bus", {8e9, 1, Duplex::Half}},
                          {"nic-a", {1e9, 20, Duplex::Full}},
                          {"nic-b", {2e9, 30, Duplex::Full}}};
  const std::vector<SharedLinkId> way = {SharedLinkId{0}, SharedLinkId{1}, SharedLinkId{2}};
  const std::vector<SharedLinkId> cards = {SharedLinkId{1}, SharedLinkId{2}};
  cluster.links = {
      {DeviceId{0}, DeviceId{1}, true, {5e9, 3, Duplex::Half}, {}},
      {DeviceId{0}, DeviceId{2}, true, {std::nullopt, 4, Duplex::Full}, way},
      {DeviceId{3}, DeviceId{1}, true, {0.5e9, 4, Duplex::Full}, {cards[1], cards[0]}},
      {DeviceId{2}, DeviceId{3}, true, {std::nullopt, 0, Duplex::Full}, {SharedLinkId{2}}},
  };
  return cluster;
}

CostModel model_of(const DevicePairs& pairs, const ir::Cluster& cluster) {
  CostModel costs;
  const ir::Status status = set_links(costs, pairs, cluster);
  REQUIRE_MESSAGE(status.ok(), (status.ok() ? "" : status.error().to_string()));
  return costs;
}

/// "nic-a forward, nic-b back": what a transfer holds, sorted by name.
std::vector<std::string> held(const CostModel& costs, std::uint16_t from, std::uint16_t to) {
  const LinkCosts* link = find_link_costs(costs, DeviceId{from}, DeviceId{to});
  REQUIRE(link != nullptr);
  std::vector<std::string> names;
  for (const ChannelId channel : link->channels) {
    names.push_back(costs.channels[ir::index_of(channel)].name);
  }
  std::ranges::sort(names);
  return names;
}

DevicePairs all_pairs() {
  DevicePairs pairs;
  for (const auto& [a, b] : std::vector<std::pair<int, int>>{{0, 1}, {0, 2}, {1, 3}, {2, 3}}) {
    pairs.emplace(DeviceId(static_cast<std::uint16_t>(a)), DeviceId(static_cast<std::uint16_t>(b)));
    pairs.emplace(DeviceId(static_cast<std::uint16_t>(b)), DeviceId(static_cast<std::uint16_t>(a)));
  }
  return pairs;
}

using Names = std::vector<std::string>;

TEST_CASE("link costs: the narrowest part of the way decides, and the latencies add up") {
  const CostModel costs = model_of(all_pairs(), two_machines());
  const ir::LinkSpec* far = find_link(costs, DeviceId{0}, DeviceId{2});
  CHECK(far->bandwidth_bytes_per_s == 1e9);  // of infinite, 8, 1 and 2 GB/s
  CHECK(far->latency == 4 + 1 + 20 + 30);
  const ir::LinkSpec* own = find_link(costs, DeviceId{1}, DeviceId{3});
  CHECK(own->bandwidth_bytes_per_s == 0.5e9);  // the link itself
  CHECK(own->latency == 4 + 20 + 30);
}

TEST_CASE("link costs: the first of a way is left outward, the last entered inward, both ways") {
  const CostModel costs = model_of(all_pairs(), two_machines());
  // Between bus and nic-b, nic-a is crossed forward from the smaller device to the larger.
  CHECK(held(costs, 0, 2) == Names{"bus", "nic-a forward", "nic-b back"});
  CHECK(held(costs, 2, 0) == Names{"bus", "nic-a back", "nic-b forward"});
  // Written from 3 to 1: nic-b first.
  CHECK(held(costs, 3, 1) == Names{"nic-a back", "nic-b forward"});
  CHECK(held(costs, 1, 3) == Names{"nic-a forward", "nic-b back"});
  // A single one: forward from the smaller index.
  CHECK(held(costs, 2, 3) == Names{"nic-b forward"});
  CHECK(held(costs, 3, 2) == Names{"nic-b back"});
  CHECK(held(costs, 0, 1) == Names{"0<>1"});
  CHECK(held(costs, 1, 0) == Names{"0<>1"});
}

TEST_CASE("link costs: only what is crossed becomes a channel, as wide as what it stands for") {
  const CostModel costs = model_of({{DeviceId{2}, DeviceId{3}}}, two_machines());
  REQUIRE(costs.channels.size() == 1);
  CHECK(costs.channels[0] == Channel{"nic-b forward", 2e9});
  CHECK(costs.links.size() == 1);
}

TEST_CASE("link costs: pairs that are not listed take the default and what it crosses") {
  ir::Cluster cluster = two_machines();
  cluster.links.clear();
  cluster.default_link = ir::LinkSpec{3e9, 7, Duplex::Full};
  cluster.default_via = {SharedLinkId{1}, SharedLinkId{2}};
  const CostModel costs =
      model_of({{DeviceId{0}, DeviceId{3}}, {DeviceId{3}, DeviceId{0}}}, cluster);
  CHECK(find_link(costs, DeviceId{3}, DeviceId{0})->latency == 57);
  CHECK(held(costs, 0, 3) == Names{"nic-a forward", "nic-b back"});
  CHECK(held(costs, 3, 0) == Names{"nic-a back", "nic-b forward"});
}

TEST_CASE("link costs: every pair that the cluster does not join is named at once") {
  CostModel costs;
  const ir::Status status = set_links(
      costs, {{DeviceId{0}, DeviceId{3}}, {DeviceId{1}, DeviceId{2}}, {DeviceId{0}, DeviceId{1}}},
      two_machines());
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().kind == ir::ErrorKind::BadInput);
  REQUIRE(status.error().diagnostics.size() == 2);
  CHECK(status.error().diagnostics[0].where == "link 0>3");
  CHECK(status.error().diagnostics[1].where == "link 1>2");
}

TEST_CASE("link costs: the sharing is the cluster's") {
  ir::Cluster cluster = two_machines();
  cluster.sharing = ir::Sharing::MaxMin;
  CHECK(model_of(all_pairs(), cluster).sharing == ir::Sharing::MaxMin);
}

}  // namespace
}  // namespace xpipe::scheduler
