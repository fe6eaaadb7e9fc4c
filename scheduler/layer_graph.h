// The graph that planners of branchy networks cut: its nodes are layers, or groups of layers that
// stay together. From a profile; the antichains (scheduler/antichains.h) are taken of it, and
// scheduler/graph_compression.h makes it smaller.
//
// Inputs are left out, as PipeDream's optimizer does: a layer called Input (or Input0, ...) that
// nothing feeds, that takes no time and has no parameters. It goes with the first stage.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/ids.h"
#include "ir/profile.h"

namespace xpipe::scheduler {

/// Sums over its layers, for the profile's samples; the output is what its last layer hands on.
struct GraphNode {
  std::vector<std::uint32_t> layers;  ///< indices into Profile::layers, ascending
  ir::Nanos time = 0;                 ///< forward and backward
  ir::Nanos forward = 0;
  ir::Bytes output_bytes = 0;
  ir::Bytes saved_bytes = 0;
  ir::Bytes parameter_bytes = 0;
};

struct LayerGraph {
  std::vector<GraphNode> nodes;                      ///< in a topological order
  std::vector<std::vector<std::uint32_t>> next;      ///< by node, ascending, no duplicates
  std::vector<std::vector<std::uint32_t>> previous;  ///< by node, ascending
  std::vector<std::uint32_t> inputs;                 ///< layers left out
};

/// Requires: totals that fit (ir::check_totals). Without inputs the nodes are the layers; a profile
/// of nothing but inputs keeps them.
[[nodiscard]] LayerGraph layer_graph(const ir::Profile& profile);

/// Fills next and previous from edges (from < to, by node); duplicates count once.
void set_edges(LayerGraph& graph, std::vector<ir::LayerEdge> edges);

}  // namespace xpipe::scheduler
