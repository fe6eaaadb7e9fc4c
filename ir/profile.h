// A model's profile: what each layer costs, measured or synthetic. Read from `xpipe.profile` JSON
// or from PipeDream's graph.txt (ir/profile_json.h, ir/pipedream_graph.h), and the only thing the
// simulator needs to know of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/ids.h"

namespace xpipe::ir {

/// Times and bytes are for Profile::samples samples.
struct LayerProfile {
  std::string name;
  Nanos forward = 0;
  Nanos backward_input = 0;
  Nanos backward_weight = 0;  ///< a backward given whole is halved into these two, odd ns to weight
  Bytes output_bytes = 0;
  Bytes saved_bytes = 0;             ///< kept from forward to backward
  Bytes saved_for_weight_bytes = 0;  ///< of those, kept until the weight part of a split backward
  Bytes parameter_bytes = 0;
  Bytes workspace_bytes = 0;  ///< scratch while the layer computes
  /// One optimizer step on the layer's parameters, whatever the number of samples; absent: not
  /// measured.
  std::optional<Nanos> update = std::nullopt;

  bool operator==(const LayerProfile&) const = default;
};

/// Layer `from`'s output is an input of layer `to`; indices into Profile::layers, from < to.
struct LayerEdge {
  std::uint32_t from = 0;
  std::uint32_t to = 0;

  bool operator==(const LayerEdge&) const = default;
  auto operator<=>(const LayerEdge&) const = default;
};

/// Layers `first` and `second` share parameters of so many bytes, which both count among theirs:
/// one copy where they are in one stage, else one in each.
struct LayerTie {
  std::uint32_t first = 0;  ///< indices into Profile::layers, first < second
  std::uint32_t second = 0;
  Bytes bytes = 0;

  bool operator==(const LayerTie&) const = default;
  auto operator<=>(const LayerTie&) const = default;
};

/// Layers stand in one stated topological order: the order of the file where it is one, else the
/// topological order that always takes the ready layer that stands first in the file. Partitions
/// are contiguous in it.
struct Profile {
  std::string name;
  std::string provenance;     ///< how, where and when it was taken; "synthetic" if it was not
  std::uint32_t samples = 0;  ///< > 0; the batch that times and bytes are for
  Nanos data_loading = 0;     ///< reported apart, never part of compute
  std::vector<LayerProfile> layers;
  std::vector<LayerEdge> edges;  ///< sorted; a chain when the file names none
  std::vector<LayerTie> ties;    ///< sorted, no pair twice

  bool operator==(const Profile&) const = default;
};

}  // namespace xpipe::ir
