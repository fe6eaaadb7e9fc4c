// Who connects to whom when bytes go from GPU to GPU, and which schedules cannot.
#include "executor/gpu_channels.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/executor/schedules.h"

namespace xpipe::tests {
namespace {

using executor::gpu_channels;
using executor::GpuChannel;
using ir::DeviceId;

using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

Pairs pairs_of(const ir::Schedule& schedule, std::uint32_t devices_per_rank) {
  const auto channels = gpu_channels(
      schedule, [=](DeviceId device) { return ir::index_of(device) / devices_per_rank; });
  REQUIRE_MESSAGE(channels.ok(), channels.error().to_string());
  Pairs pairs;
  for (const GpuChannel& channel : channels.value()) {
    pairs.emplace_back(ir::index_of(channel.from), ir::index_of(channel.to));
  }
  return pairs;
}

TEST_CASE("gpu channels: both directions of each pair, ascending; none within a process") {
  const ir::Schedule schedule = compiled("xpipe", 4, 2, 2);
  CHECK(pairs_of(schedule, 1) == Pairs{{0, 1}, {1, 0}, {1, 2}, {2, 1}, {2, 3}, {3, 2}});
  CHECK(pairs_of(schedule, 2) == Pairs{{1, 2}, {2, 1}});
  CHECK(pairs_of(schedule, 4).empty());
}

TEST_CASE("gpu channels: every policy sends and receives in one order") {
  for (const scheduler::Policy& policy : all_policies()) {
    CAPTURE(policy.name);
    for (const std::uint32_t stages : {2U, 3U, 6U}) {
      CHECK(pairs_of(compiled(policy, stages, 3, 4), 1).size() == 2 * (stages - 1));
    }
  }
}

TEST_CASE("gpu channels: a schedule whose receives overtake each other is refused, with both") {
  ir::Schedule schedule = compiled("gpipe", 2, 2, 1);
  const auto receives = std::ranges::find_if(schedule.lanes, [](const ir::Lane& lane) {
    return lane.kind == ir::LaneKind::Receive && lane.device == DeviceId{1};
  });
  REQUIRE(receives != schedule.lanes.end());
  REQUIRE(receives->order.size() == 2);
  std::swap(receives->order[0], receives->order[1]);
  const auto refused = gpu_channels(schedule, [](DeviceId device) { return ir::index_of(device); });
  REQUIRE(!refused.ok());
  CHECK(refused.error().kind == ir::ErrorKind::Usage);
  CHECK(refused.error().to_string() ==
        "--transport: device 0 sends 0SEND_F0[1000B] where device 1 receives 0SEND_F1[1000B]: the "
        "two ends of a transfer between GPUs meet in order, so this schedule cannot be run over "
        "nccl; use --transport gloo [transfers-cross]");
  // In one process no order is asked for.
  CHECK(gpu_channels(schedule, [](DeviceId) { return 0U; }).ok());
}

}  // namespace
}  // namespace xpipe::tests
