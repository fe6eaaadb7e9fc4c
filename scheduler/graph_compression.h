// Makes a branchy network small enough for the search over its antichains (scheduler/antichains.h)
// by keeping nodes together. What is then exact is exact over the cuts that divide no group.
//
//   none       every node by itself
//   branches   within a branch, what follows one another without a fork or a join becomes one
//   group:
//              a branch of n nodes can be cut before it and after it, not within
//   regions    all that lies between two nodes of the trunk becomes one group
//
// The trunk is the nodes that every path runs through, more exactly those that lead to, or are led
// to by, every other node; it is never grouped, so that a plain chain stays as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "scheduler/antichains.h"
#include "scheduler/layer_graph.h"

namespace xpipe::scheduler {

enum class Compression : std::uint8_t { None, Branches, Regions };

/// "none", "branches", "regions".
[[nodiscard]] std::string_view compression_name(Compression compression);

/// Times, saved bytes and parameters of a group add up; its output is what leaves it. `longest` is
/// for branches: the time of a group of several nodes, at most.
[[nodiscard]] LayerGraph compressed(const LayerGraph& graph,
                                    Compression compression,
                                    ir::Nanos longest = std::numeric_limits<ir::Nanos>::max());

/// The antichains of a graph, compressed no more than it takes.
struct Cuts {
  std::vector<Antichain> antichains;
  LayerGraph graph;  ///< what they are of
  Compression compression = Compression::None;
  ir::Nanos longest = 0;  ///< of a group of several nodes
};

/// At most `most` antichains, or as many as `regions` leaves, at most one a node. Branches are
/// grouped by the whole network's time / 2^n for the largest n that will do.
[[nodiscard]] Cuts bounded_antichains(const LayerGraph& graph, std::size_t most);

}  // namespace xpipe::scheduler
