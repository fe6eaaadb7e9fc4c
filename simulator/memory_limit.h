// Whether a schedule fits the memory of its devices. One that does not is illegal (exit 4): each
// device is limited by itself, so a lighter one may be the one at fault.
//
//   memory-limit: device 0, stage 0: needs 40004000 bytes at 8 ms, its limit is 35000000: 5004000
//   too many; weights 1000, gradients 1000, optimizer 2000, activations 40000000; ...
#pragma once

#include <optional>
#include <vector>

#include "ir/cluster.h"
#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "simulator/memory.h"

namespace xpipe::simulator {

/// By DeviceId: `memory_bytes` of the cluster's devices; absent where there is no limit.
using MemoryLimits = std::vector<std::optional<ir::Bytes>>;

[[nodiscard]] MemoryLimits memory_limits(const ir::Cluster& cluster);

/// `memory` is memory_over_time() of `schedule`; its curves are not needed. Devices beyond `limits`
/// have none. Errors: Illegal, for every device that does not fit: its stages, the moment of its
/// peak, the sum by kind then, and how many bytes are too many.
[[nodiscard]] ir::Status check_memory(const ir::Schedule& schedule,
                                      const std::vector<DeviceMemory>& memory,
                                      const MemoryLimits& limits);

}  // namespace xpipe::simulator
