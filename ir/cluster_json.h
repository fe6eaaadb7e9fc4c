// The cluster as JSON (`"format": "xpipe.cluster"`):
//
//   {"format": "xpipe.cluster", "version": 1, "name": "two boxes",
//    "devices": [{"name": "gpu0", "speed": 1.0, "memory_bytes": 17179869184,
//                 "memory_bandwidth_bytes_per_s": 9e11}, ...],
//    "links": [{"from": 0, "to": 1, "bandwidth_bytes_per_s": 1.25e10, "latency_us": 5,
//               "duplex": "full", "symmetric": true}, ...],
//    "default_link": {"bandwidth_bytes_per_s": 1e9, "latency_us": 10, "duplex": "half"}}
//
// A device is named by its index or its name. Of a device nothing is required, of a link its ends.
// Without bandwidth a link is infinitely fast, without latency it has none; it is full duplex and
// symmetric unless it says otherwise.
#pragma once

#include <string_view>

#include "ir/cluster.h"
#include "ir/status.h"

namespace xpipe::ir {

/// Errors: BadInput, every fault with its JSON path, or line and column where it is not JSON. A
/// direction listed twice is a fault. Shared links are not read yet and are refused by name.
[[nodiscard]] Result<Cluster> cluster_from_json(std::string_view text, std::string_view file);

}  // namespace xpipe::ir
