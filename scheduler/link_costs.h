// From the links of a cluster to those of a cost model: how fast a transfer between two devices is,
// and which channels it holds. A shared link becomes two channels, one for each direction, or one
// when it is half duplex; only what some link crosses is there.
//
//   cluster: 0 -> 2 via nic-a, nic-b        0>2: the narrowest of both; nic-a forward, nic-b back
//            1 -> 2 via nic-a, nic-b        1>2: the same channels; 2>0: nic-b forward, nic-a back
//
// "forward" of a shared link is what the first of a `via` is crossed in, "back" the last; of those
// between, and of a single one, forward is from the smaller device index to the larger.
#pragma once

#include <set>
#include <utility>

#include "ir/cluster.h"
#include "ir/ids.h"
#include "ir/status.h"
#include "scheduler/cost_model.h"

namespace xpipe::scheduler {

using DevicePairs = std::set<std::pair<ir::DeviceId, ir::DeviceId>>;  ///< (from, to)

/// Replaces links, channels and sharing of `costs` by those that `pairs` need in `cluster`.
/// Errors: BadInput, every pair that the cluster neither lists nor has a default for.
[[nodiscard]] ir::Status set_links(CostModel& costs,
                                   const DevicePairs& pairs,
                                   const ir::Cluster& cluster);

}  // namespace xpipe::scheduler
