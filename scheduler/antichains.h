// The places where a branchy network can be cut in two: its antichains. An antichain, a set of
// nodes none of which leads to another, stands for the part of the network up to and with them; a
// pipeline of D stages is a chain of D such parts, each within the next.
//
//          +- b1 - b2 -+        antichains: a, b1, b2, c, {b1,c}, {b2,c}, d
//      a --|           |-- d
//          +- c -------+
//
// Enumerated as PipeDream's optimizer does (SOSP'19, 3.1; its graph.py): from the first source, by
// one step along an edge at a time, a node taking with it all that it needs. Branches multiply: k
// of n nodes each have about (n + 1)^k parts, hence the bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <boost/dynamic_bitset.hpp>

#include "ir/ids.h"
#include "scheduler/layer_graph.h"

namespace xpipe::scheduler {

/// By node of the graph.
using NodeSet = boost::dynamic_bitset<std::uint64_t>;

/// A part of the network that a cut leaves behind it; sums are over its nodes.
struct Antichain {
  NodeSet part;
  ir::Nanos time = 0;
  ir::Nanos forward = 0;
  ir::Bytes saved_bytes = 0;
  ir::Bytes parameter_bytes = 0;
  /// What leaves the part: outputs that a node outside uses, each once.
  ir::Bytes crossing_bytes = 0;
  /// As PipeDream's optimizer counts it: the outputs of the antichain, used or not, and of every
  /// node before a member with an edge to a node that is not before that member. So a tensor that
  /// another member has used up counts, too.
  ir::Bytes output_bytes = 0;
};

/// In a topological order of the steps between them (depth first): a part comes after all parts
/// that it contains, and the last is the whole network. nullopt when there are more than `most`.
/// Requires: at least one node. O(antichains * out-edges * nodes / 64).
[[nodiscard]] std::optional<std::vector<Antichain>> antichains(const LayerGraph& graph,
                                                               std::size_t most);

}  // namespace xpipe::scheduler
