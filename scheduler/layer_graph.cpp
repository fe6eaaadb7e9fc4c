#include "scheduler/layer_graph.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace xpipe::scheduler {

namespace {

/// "Input", "node1 Input0": what graph.txt calls the nodes that only hand in the data.
bool is_named_input(const std::string& name) {
  const std::size_t end = name.find_last_not_of("0123456789") + 1;
  return std::string_view(name).substr(0, end).ends_with("Input");
}

}  // namespace

LayerGraph layer_graph(const ir::Profile& profile) {
  const auto layers = static_cast<std::uint32_t>(profile.layers.size());
  std::vector<bool> is_fed(layers, false);
  for (const ir::LayerEdge& edge : profile.edges) {
    is_fed[edge.to] = true;
  }
  LayerGraph graph;
  for (std::uint32_t l = 0; l < layers; ++l) {
    const ir::LayerProfile& layer = profile.layers[l];
    if (!is_fed[l] && is_named_input(layer.name) && layer.parameter_bytes == 0 &&
        layer.forward + layer.backward_input + layer.backward_weight == 0) {
      graph.inputs.push_back(l);
    }
  }
  if (graph.inputs.size() == layers) {
    graph.inputs.clear();
  }
  std::vector<std::uint32_t> node_of(layers, layers);
  for (std::uint32_t l = 0; l < layers; ++l) {
    if (std::ranges::binary_search(graph.inputs, l)) {
      continue;
    }
    const ir::LayerProfile& layer = profile.layers[l];
    node_of[l] = static_cast<std::uint32_t>(graph.nodes.size());
    graph.nodes.push_back({.layers = {l},
                           .time = layer.forward + layer.backward_input + layer.backward_weight,
                           .forward = layer.forward,
                           .output_bytes = layer.output_bytes,
                           .saved_bytes = layer.saved_bytes,
                           .parameter_bytes = layer.parameter_bytes});
  }
  std::vector<ir::LayerEdge> edges;
  for (const ir::LayerEdge& edge : profile.edges) {
    if (node_of[edge.from] < layers) {
      edges.push_back({node_of[edge.from], node_of[edge.to]});
    }
  }
  set_edges(graph, std::move(edges));
  return graph;
}

void set_edges(LayerGraph& graph, std::vector<ir::LayerEdge> edges) {
  std::ranges::sort(edges);
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  graph.next.assign(graph.nodes.size(), {});
  graph.previous.assign(graph.nodes.size(), {});
  for (const ir::LayerEdge& edge : edges) {
    graph.next[edge.from].push_back(edge.to);
    graph.previous[edge.to].push_back(edge.from);
  }
}

}  // namespace xpipe::scheduler
