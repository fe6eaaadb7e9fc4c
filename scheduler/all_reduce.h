// What it takes to sum the gradients of a stage over its replicas, by formula: r devices, n bytes,
// alpha a link's latency, beta its seconds a byte.
//
//   ring   2(r-1) steps, in each of which every device sends n/r to the next one (Patarasuk & Yuan,
//          "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009; NCCL):
//          2(r-1) alpha + 2(r-1)/r n beta with equal links
//   tree   up and down two binary trees of half the bytes each, in small pieces (Sanders, Speck &
//          Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009;
//          NCCL's double binary trees): 2 ceil(log2 r) alpha + 2 n beta
//
// A step of the ring lasts as long as its slowest link takes; where several of its links cross one
// channel (scheduler/cost_model.h), that channel carries them all. The tree is priced on the
// slowest link between any two of the devices. Other transfers of the same time are left out.
#pragma once

#include <vector>

#include "ir/cluster.h"
#include "ir/ids.h"
#include "scheduler/cost_model.h"
#include "scheduler/link_costs.h"

namespace xpipe::scheduler {

/// The links that it uses: the ring's, or all between any two for the tree.
[[nodiscard]] DevicePairs all_reduce_pairs(ir::AllReduceKind kind,
                                           const std::vector<ir::DeviceId>& replicas);

/// 0 for a single replica; kTooLarge when it does not fit.
/// Requires: `costs` has the links of all_reduce_pairs(kind, replicas).
[[nodiscard]] ir::Nanos all_reduce_time(ir::AllReduceKind kind,
                                        const CostModel& costs,
                                        const std::vector<ir::DeviceId>& replicas,
                                        ir::Bytes bytes);

}  // namespace xpipe::scheduler
