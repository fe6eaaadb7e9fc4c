#include "scheduler/fair_sharing.h"

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "scheduler/progress.h"
#include "scheduler/rounding.h"

namespace xpipe::tests {
namespace {

using ir::LaneId;
using ir::Nanos;
using scheduler::kFullSpeed;
using scheduler::Progress;
using scheduler::Speed;

TEST_CASE("progress: alone, work takes its duration; at half speed twice that") {
  Progress alone(100, 7);
  CHECK(alone.end() == 107);
  alone.set_speed(103, kFullSpeed / 2);
  CHECK(alone.end() == 111);  // 4 ns left
  alone.set_speed(105, kFullSpeed);
  CHECK(alone.end() == 108);  // 3 ns left
  CHECK(alone.left(105) == Progress::Left{3, 0});
}

TEST_CASE("progress: the end is rounded up, and fractions are kept") {
  Progress third(0, 1);
  third.set_speed(0, kFullSpeed / 3);
  CHECK(third.end() == 4);  // 3.0000000014
  Progress slow(0, 10);
  slow.set_speed(0, scheduler::slowed(4.0 / 3.0));  // 3/4
  CHECK(slow.end() == 14);                          // 13.33
  slow.set_speed(13, kFullSpeed);                   // 0.25 left
  CHECK(slow.end() == 14);
  CHECK(scheduler::slowed(1.0) == kFullSpeed);
  CHECK(scheduler::slowed(0.5) == kFullSpeed);
  CHECK(scheduler::slowed(1e300) == 1);
  Progress never(5, scheduler::kTooLarge / 2);
  never.set_speed(5, 1);
  CHECK(never.end() == scheduler::kTooLarge);
}

TEST_CASE("progress: looking at it more often, or later, changes nothing") {
  CHECK(rc::check("same speeds at the same moments, the same end", [] {
    const Nanos begin = *rc::gen::inRange<Nanos>(0, 1'000'000);
    const Nanos duration = *rc::gen::inRange<Nanos>(1, 1'000'000);
    const auto speeds = *rc::gen::container<std::vector<std::pair<Nanos, Speed>>>(rc::gen::pair(
        rc::gen::inRange<Nanos>(0, 1000), rc::gen::inRange<Speed>(1, kFullSpeed + 1)));
    Progress once(begin, duration);
    Progress often(begin, duration);
    Progress later(begin + 12345, duration);
    Nanos now = begin;
    for (const auto& [wait, speed] : speeds) {
      if (once.end() <= now + wait) {
        break;
      }
      if (wait > 1) {
        often.set_speed(now + wait / 2, often.speed());
      }
      now += wait;
      once.set_speed(now, speed);
      often.set_speed(now, speed);
      later.set_speed(now + 12345, speed);
    }
    RC_ASSERT(often.end() == once.end());
    RC_ASSERT(later.end() == once.end() + 12345);
  }));
}

/// One send lane for each link; `channels` of each, bandwidths in GB/s.
struct Net {
  struct Link {
    double bandwidth;
    std::vector<std::uint32_t> channels;
  };

  Net(const std::vector<double>& channels, const std::vector<Link>& links) {
    for (const double bandwidth : channels) {
      costs.channels.push_back({"c", bandwidth * 1e9});
    }
    for (const Link& link : links) {
      const ir::DeviceId to{static_cast<std::uint16_t>(costs.links.size() + 1)};
      schedule.lanes.push_back({ir::LaneKind::Send, ir::DeviceId{0}, to, {}});
      scheduler::LinkCosts cost{.from = ir::DeviceId{0}, .to = to, .spec = {}};
      cost.spec.bandwidth_bytes_per_s = link.bandwidth * 1e9;
      for (const std::uint32_t c : link.channels) {
        cost.channels.push_back(scheduler::ChannelId{c});
      }
      costs.links.push_back(cost);
    }
  }

  /// GB/s of transfers on these lanes, all at once.
  std::vector<double> rates(const std::vector<std::uint32_t>& lanes) const {
    scheduler::FairSharing sharing(costs, schedule);
    std::vector<LaneId> ids;
    for (const std::uint32_t l : lanes) {
      ids.push_back(LaneId{l});
    }
    const std::vector<Speed> speeds = sharing.speeds(ids);
    std::vector<double> rates;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      rates.push_back(static_cast<double>(speeds[i]) / static_cast<double>(kFullSpeed) *
                      *costs.links[lanes[i]].spec.bandwidth_bytes_per_s / 1e9);
    }
    return rates;
  }

  scheduler::CostModel costs;
  ir::Schedule schedule;
};

void check_rates(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-8));
  }
}

TEST_CASE(
    "fair sharing: equal parts of a channel, and what a slow link leaves goes to the others") {
  const Net net({10}, {{2, {0}}, {8, {0}}, {8, {0}}});
  check_rates(net.rates({0}), {2});
  check_rates(net.rates({1}), {8});
  check_rates(net.rates({1, 2}), {5, 5});
  check_rates(net.rates({0, 1, 2}), {2, 4, 4});
}

TEST_CASE("fair sharing: a long way yields to none, and takes its part on every channel") {
  // The parking lot: a crosses both channels of 10 and 6, b the first, c and d the second.
  //   second channel: 6 / 3 = 2 each; then b has what a leaves of the first: 8
  const Net net({10, 6}, {{10, {0, 1}}, {10, {0}}, {6, {1}}, {6, {1}}});
  check_rates(net.rates({0, 1, 2, 3}), {2, 8, 2, 2});
  check_rates(net.rates({0, 1}), {5, 5});
  check_rates(net.rates({0, 2}), {3, 3});
}

TEST_CASE("fair sharing: feasible, and nobody could go faster but at the cost of a slower one") {
  CHECK(rc::check("max-min", [] {
    const std::size_t channel_count = *rc::gen::inRange<std::size_t>(1, 5);
    const auto bandwidths =
        *rc::gen::container<std::vector<int>>(channel_count, rc::gen::inRange(1, 50));
    const std::size_t link_count = *rc::gen::inRange<std::size_t>(1, 8);
    std::vector<double> channels(bandwidths.begin(), bandwidths.end());
    std::vector<Net::Link> links;
    std::vector<std::uint32_t> lanes;
    for (std::size_t l = 0; l < link_count; ++l) {
      Net::Link link{static_cast<double>(*rc::gen::inRange(1, 50)), {}};
      for (std::uint32_t c = 0; c < channel_count; ++c) {
        if (*rc::gen::arbitrary<bool>()) {
          link.channels.push_back(c);
        }
      }
      lanes.push_back(static_cast<std::uint32_t>(l));
      links.push_back(link);
    }
    const Net net(channels, links);
    const std::vector<double> rates = net.rates(lanes);
    constexpr double kSlack = 1e-6;
    std::vector<double> used(channel_count, 0);
    std::vector<double> fastest(channel_count, 0);
    for (std::size_t l = 0; l < link_count; ++l) {
      for (const std::uint32_t c : links[l].channels) {
        used[c] += rates[l];
        fastest[c] = std::max(fastest[c], rates[l]);
      }
    }
    for (std::size_t c = 0; c < channel_count; ++c) {
      RC_ASSERT(used[c] <= channels[c] + kSlack);
    }
    for (std::size_t l = 0; l < link_count; ++l) {
      bool is_held = rates[l] >= links[l].bandwidth - kSlack;
      for (const std::uint32_t c : links[l].channels) {
        is_held |= used[c] >= channels[c] - kSlack && rates[l] >= fastest[c] - kSlack;
      }
      RC_ASSERT(is_held);
    }
  }));
}

}  // namespace
}  // namespace xpipe::tests
