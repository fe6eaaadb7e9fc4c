// The cluster as JSON (`"format": "xpipe.cluster"`), read and written:
//
//   {"format": "xpipe.cluster", "version": 1, "name": "two boxes", "provenance": "data sheets",
//    "devices": [{"name": "gpu0", "speed": 1.0, "memory_bytes": 17179869184,
//                 "memory_bandwidth_bytes_per_s": 9e11, "overlap_slowdown": 1.1,
//                 "launch_overhead_us": 5}, ...],
//    "shared_links": [{"name": "nic-a", "bandwidth_bytes_per_s": 1.25e9, "latency_us": 20,
//                      "duplex": "full"}, ...],
//    "links": [{"from": 0, "to": 1, "bandwidth_bytes_per_s": 1.25e10, "latency_us": 5,
//               "duplex": "full", "symmetric": true},
//              {"from": [0, 1], "to": ["gpu2", "gpu3"], "via": ["nic-a", "nic-b"]}, ...],
//    "default_link": {"bandwidth_bytes_per_s": 1e9, "latency_us": 10, "duplex": "half"},
//    "sharing": "first-come", "all_reduce": "ring"}
//
// A device is named by its index or its name. `from` and `to` may be lists: a link from each of the
// one to each of the other. Of a device nothing is required, of a link its ends, of a shared link
// its name. Without bandwidth a link is infinitely fast, without latency it has none; it is full
// duplex and symmetric unless it says otherwise. `sharing` is "first-come" or "max-min",
// `all_reduce` "ring" or "tree".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ir/cluster.h"
#include "ir/status.h"

namespace xpipe::ir {

/// More pairs of devices than this are refused, so that two lists cannot ask for billions.
inline constexpr std::size_t kMaxLinks = 1'000'000;

/// Errors: BadInput, every fault with its JSON path, or line and column where it is not JSON. A
/// direction listed twice, a `via` that names nothing and a shared link that nothing crosses are
/// faults.
[[nodiscard]] Result<Cluster> cluster_from_json(std::string_view text, std::string_view file);

/// The same cluster gives the same bytes. Reading it back gives an equal cluster.
[[nodiscard]] std::string cluster_to_json(const Cluster& cluster);

/// "first-come", "max-min"; "ring", "tree"; "full", "half": as in the file.
[[nodiscard]] std::string_view sharing_name(Sharing sharing);
[[nodiscard]] std::string_view all_reduce_name(AllReduceKind kind);
[[nodiscard]] std::string_view duplex_name(Duplex duplex);

}  // namespace xpipe::ir
