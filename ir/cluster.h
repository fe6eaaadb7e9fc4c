// A cluster: devices and the links between them. Read from `xpipe.cluster` JSON
// (ir/cluster_json.h); plain values, no arithmetic: what a transfer costs is
// scheduler/link_model.h.
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

/// `from` to `to`, and back too when `symmetric`.
struct Link {
  DeviceId from{};
  DeviceId to{};
  bool symmetric = true;
  LinkSpec spec;

  bool operator==(const Link&) const = default;
};

struct Cluster {
  std::string name;
  std::vector<DeviceSpec> devices;
  std::vector<Link> links;
  std::optional<LinkSpec> default_link;  ///< for pairs not listed; without it they are an error

  bool operator==(const Cluster&) const = default;
};

}  // namespace xpipe::ir
