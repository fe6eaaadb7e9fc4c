// Which devices of different processes send to which, when the bytes go from GPU to GPU
// (executor/gpu_transport.h). A channel is one direction of one pair of devices: what one side does
// there never waits for what it does in the other direction, so two sends that cross cannot wait
// for each other.
//
//   device 0 of rank 0  --- channel 0 -> 1: 0SEND_F0 0SEND_F1 ... --->  device 1 of rank 1
//                       <-- channel 1 -> 0: 1SEND_B0 1SEND_B1 ... ----
//
// Pure: tests need no GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::executor {

struct GpuChannel {
  ir::DeviceId from{};
  ir::DeviceId to{};

  bool operator==(const GpuChannel&) const = default;
  auto operator<=>(const GpuChannel&) const = default;
};

/// The rank that runs a device.
using RankOfDevice = std::function<std::uint32_t(ir::DeviceId)>;

/// Those that the messages of `schedule` use, in the order in which all ranks connect them: pairs
/// in ascending order, the lower device's sends first. So no ranks wait for each other in a ring.
/// Errors: Usage "transfers-cross" for a channel whose messages are sent in one order and received
/// in another, with both: the ends of a transfer meet in order.
[[nodiscard]] ir::Result<std::vector<GpuChannel>> gpu_channels(const ir::Schedule& schedule,
                                                               const RankOfDevice& rank_of);

}  // namespace xpipe::executor
