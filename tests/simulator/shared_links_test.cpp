// Links that several pairs of devices share: when transfers wait for each other, and when not.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ir/cluster.h"
#include "ir/text.h"
#include "scheduler/link_costs.h"
#include "simulator/simulate.h"
#include "tests/simulator/replay_helpers.h"

namespace xpipe::tests {
namespace {

using ir::DeviceId;
using ir::Duplex;
using ir::Nanos;
using ir::SharedLinkId;

constexpr ir::Bytes kMega = 1'000'000;  // 1000 us at 1 GB/s

/// Devices 0 and 1 in one machine, 2 and 3 in another, a network card each of 1 GB/s; 5 us of
/// latency in each card.
ir::Cluster two_machines(Duplex duplex) {
  ir::Cluster cluster;
  cluster.devices.resize(4);
  cluster.shared_links = {{"nic-a", {1e9, 5 * kMicro, duplex}},
                          {"nic-b", {1e9, 5 * kMicro, duplex}}};
  for (const std::uint16_t a : {std::uint16_t{0}, std::uint16_t{1}}) {
    for (const std::uint16_t b : {std::uint16_t{2}, std::uint16_t{3}}) {
      cluster.links.push_back(
          {DeviceId{a}, DeviceId{b}, true, {}, {SharedLinkId{0}, SharedLinkId{1}}});
    }
  }
  cluster.default_link = ir::LinkSpec{};
  return cluster;
}

/// A transfer of kMega from one device to another, ready at 0. Stage k is on device k.
struct Transfer {
  std::uint16_t from = 0;
  std::uint16_t to = 0;
};

/// Nothing but the transfers, each with its receive.
ir::Schedule only(const std::vector<Transfer>& transfers) {
  ir::Schedule schedule;
  schedule.devices = 4;
  schedule.micro_batches = 1;
  schedule.mini_batches = 1;
  for (std::uint16_t d = 0; d < 4; ++d) {
    schedule.stages.push_back({DeviceId{d}, 1});
  }
  for (const Transfer& t : transfers) {
    const auto lane = static_cast<std::uint32_t>(schedule.lanes.size());
    const auto task = static_cast<std::uint32_t>(schedule.tasks.size());
    schedule.lanes.push_back(
        {ir::LaneKind::Send, DeviceId{t.from}, DeviceId{t.to}, {ir::TaskId{task}}});
    schedule.lanes.push_back(
        {ir::LaneKind::Receive, DeviceId{t.to}, DeviceId{t.from}, {ir::TaskId{task + 1}}});
    const ir::Pass pass = t.from < t.to ? ir::Pass::Forward : ir::Pass::Backward;
    schedule.tasks.push_back(
        {ir::Send{kMega, {}, ir::StageId{t.to}, pass}, ir::LaneId{lane}, ir::StageId{t.from}});
    schedule.tasks.push_back({ir::Receive{kMega, {}, ir::StageId{t.from}, pass},
                              ir::LaneId{lane + 1}, ir::StageId{t.to}});
    schedule.edges.push_back({ir::TaskId{task}, ir::TaskId{task + 1}});
  }
  return schedule;
}

/// When each transfer arrives, in microseconds.
std::vector<Nanos> arrivals(const std::vector<Transfer>& transfers, const ir::Cluster& cluster) {
  const ir::Schedule schedule = only(transfers);
  scheduler::DevicePairs pairs;
  for (const Transfer& t : transfers) {
    pairs.emplace(DeviceId{t.from}, DeviceId{t.to});
  }
  scheduler::CostModel costs = equal_stages(4, 0, 0);
  REQUIRE(scheduler::set_links(costs, pairs, cluster).ok());
  REQUIRE(scheduler::check_costs(costs, schedule).ok());
  const ir::Timeline timeline = simulator::simulate(schedule, costs);
  std::vector<Nanos> times;
  for (std::size_t i = 1; i < timeline.spans.size(); i += 2) {
    times.push_back(timeline.spans[i].end / kMicro);
  }
  return times;
}

using Times = std::vector<Nanos>;

TEST_CASE(
    "shared links: the card is busy size over bandwidth, latencies come once, after it (G1)") {
  CHECK(arrivals({{0, 2}}, two_machines(Duplex::Full)) == Times{1010});
}

TEST_CASE(
    "shared links: two pairs through one card wait for each other, in the order of their tasks") {
  CHECK(arrivals({{0, 2}, {1, 3}}, two_machines(Duplex::Full)) == Times{1010, 2010});
  CHECK(arrivals({{1, 3}, {0, 2}}, two_machines(Duplex::Full)) == Times{1010, 2010});
}

TEST_CASE("shared links: both directions of a card at once only when it is duplex (G2)") {
  CHECK(arrivals({{0, 2}, {3, 1}}, two_machines(Duplex::Full)) == Times{1010, 1010});
  CHECK(arrivals({{0, 2}, {3, 1}}, two_machines(Duplex::Half)) == Times{1010, 2010});
}

TEST_CASE("shared links: who does not cross it does not wait for it") {
  ir::Cluster cluster = two_machines(Duplex::Half);
  cluster.links.push_back({DeviceId{0}, DeviceId{1}, true, {1e9, 0, Duplex::Full}, {}});
  CHECK(arrivals({{0, 2}, {0, 1}, {1, 0}}, cluster) == Times{1010, 1000, 1000});
}

TEST_CASE("shared links: the narrowest part decides, and doubling another changes nothing") {
  ir::Cluster cluster = two_machines(Duplex::Full);
  cluster.shared_links[1].spec.bandwidth_bytes_per_s = 0.5e9;
  CHECK(arrivals({{0, 2}}, cluster) == Times{2010});
  cluster.shared_links[0].spec.bandwidth_bytes_per_s = 2e9;
  CHECK(arrivals({{0, 2}}, cluster) == Times{2010});
  cluster.shared_links[1].spec.bandwidth_bytes_per_s = 1e9;
  CHECK(arrivals({{0, 2}}, cluster) == Times{1010});
}

TEST_CASE("shared links: a star's ports let different pairs pass, and one sender's wait") {
  // Four devices at a switch, a port each: 0 > 1 and 2 > 3 share nothing; 0 > 1 and 0 > 2 share the
  // way out of port 0; 0 > 1 and 2 > 1 the way into port 1; 0 > 1 and 1 > 2 nothing.
  ir::Cluster cluster;
  cluster.devices.resize(4);
  for (int d = 0; d < 4; ++d) {
    cluster.shared_links.push_back({"port" + std::to_string(d), {1e9, 0, Duplex::Full}});
  }
  for (std::uint16_t a = 0; a < 4; ++a) {
    for (std::uint16_t b = a + 1; b < 4; ++b) {
      cluster.links.push_back(
          {DeviceId{a}, DeviceId{b}, true, {}, {SharedLinkId{a}, SharedLinkId{b}}});
    }
  }
  CHECK(arrivals({{0, 1}, {2, 3}}, cluster) == Times{1000, 1000});
  CHECK(arrivals({{0, 1}, {0, 2}}, cluster) == Times{1000, 2000});
  CHECK(arrivals({{0, 1}, {2, 1}}, cluster) == Times{1000, 2000});
  CHECK(arrivals({{0, 1}, {1, 2}}, cluster) == Times{1000, 1000});
  // First come, first served holds the second's place in every line: 0 > 1, then 0 > 2 waits for
  // port 0 and lets nobody pass at port 2, then 3 > 2 (it could have gone at 0).
  CHECK(arrivals({{0, 1}, {0, 2}, {3, 2}}, cluster) == Times{1000, 2000, 3000});
}

TEST_CASE(
    "shared links: with fair sharing two transfers of one card take as long as both together") {
  ir::Cluster cluster = two_machines(Duplex::Full);
  cluster.sharing = ir::Sharing::MaxMin;
  CHECK(arrivals({{0, 2}, {1, 3}}, cluster) == Times{2010, 2010});
  CHECK(arrivals({{0, 2}, {3, 1}}, cluster) == Times{1010, 1010});
}

}  // namespace
}  // namespace xpipe::tests
