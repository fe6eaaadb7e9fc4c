// A cluster: devices and the links between them. Read from `xpipe.cluster` JSON
// (ir/cluster_json.h); plain values, no arithmetic: what a transfer costs is
// scheduler/cost_model.h, who waits for whom scheduler/link_model.h.
//
//   machine a            machine b         Four devices, two shared links (the NICs). Inside a
//   0 -.            .- 2                   machine a link of its own; 0 > 2 crosses nic-a outward
//       nic-a -- nic-b                     and nic-b inward, as does 1 > 3 at the same time.
//   1 -'            '- 3
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/ids.h"

namespace xpipe::ir {

struct DeviceSpec {
  std::string name;
  double speed = 1.0;  ///< compute times are divided by it; > 0
  std::optional<Bytes> memory_bytes;
  /// Prices prediction, step and stash copies; without it they are free (design.md §10).
  std::optional<double> memory_bandwidth_bytes_per_s;
  /// Compute takes so many times longer while a transfer runs from or to the device; >= 1.
  double overlap_slowdown = 1.0;
  Nanos launch_overhead = 0;  ///< on every task of its compute lane

  bool operator==(const DeviceSpec&) const = default;
};

enum class Duplex : std::uint8_t {
  Full,  ///< each direction has the whole bandwidth
  Half,  ///< one transfer at a time over both directions, first come first served
};

/// What transfers that want the same half-duplex or shared link at the same time do.
enum class Sharing : std::uint8_t {
  FirstCome,  ///< one after the other, in the order in which they are ready
  MaxMin,     ///< all at once, each as fast as is fair
};

struct LinkSpec {
  std::optional<double> bandwidth_bytes_per_s;  ///< absent: infinite
  Nanos latency = 0;
  Duplex duplex = Duplex::Full;

  bool operator==(const LinkSpec&) const = default;
};

/// An index into Cluster::shared_links.
enum class SharedLinkId : std::uint32_t {};

/// What the links of several pairs of devices cross: a NIC, a switch's port, a bus. With full
/// duplex each direction has the whole bandwidth.
struct SharedLink {
  std::string name;
  LinkSpec spec;

  bool operator==(const SharedLink&) const = default;
};

/// `from` to `to`, and back too when `symmetric`. A transfer is as fast as the narrowest of the
/// link and what it crosses; their latencies add up.
///
/// Direction on the full-duplex shared links of a `via`: of two or more the first is crossed
/// outward and the last inward, whichever way the link goes; those between, and a single one,
/// forward when the sender's index is below the receiver's, else back. On the way back of a
/// symmetric link the order is reversed.
struct Link {
  DeviceId from{};
  DeviceId to{};
  bool symmetric = true;
  LinkSpec spec;
  std::vector<SharedLinkId> via = {};  ///< in the order from `from` to `to`, each once

  bool operator==(const Link&) const = default;
};

/// How the replicas of a stage sum their gradients; prices it (scheduler/all_reduce.h).
enum class AllReduceKind : std::uint8_t { Ring, Tree };

struct Cluster {
  std::string name;
  std::string provenance;  ///< where the figures are from
  std::vector<DeviceSpec> devices;
  std::vector<SharedLink> shared_links;  ///< by SharedLinkId
  std::vector<Link> links;
  std::optional<LinkSpec> default_link;   ///< for pairs not listed; without it they are an error
  std::vector<SharedLinkId> default_via;  ///< what those cross
  Sharing sharing = Sharing::FirstCome;
  AllReduceKind all_reduce = AllReduceKind::Ring;

  bool operator==(const Cluster&) const = default;
};

}  // namespace xpipe::ir
