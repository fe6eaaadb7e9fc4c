#include "scheduler/graph_compression.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ir/status.h"

namespace xpipe::scheduler {

namespace {

using Node = std::uint32_t;

/// By node: whether every other node leads to it or is led to by it.
std::vector<bool> trunk_of(const LayerGraph& graph) {
  const std::size_t count = graph.nodes.size();
  std::vector<NodeSet> needs;
  std::vector<std::size_t> needed_by(count, 0);
  for (Node n = 0; n < count; ++n) {
    NodeSet set(count);
    for (const Node before : graph.previous[n]) {
      set |= needs[before];
      set.set(before);
    }
    for (auto p = set.find_first(); p != NodeSet::npos; p = set.find_next(p)) {
      ++needed_by[p];
    }
    needs.push_back(std::move(set));
  }
  std::vector<bool> trunk(count);
  for (Node n = 0; n < count; ++n) {
    trunk[n] = needs[n].count() + needed_by[n] + 1 == count;
  }
  return trunk;
}

/// By node: the first node of its group.
std::vector<Node> groups_of(const LayerGraph& graph, Compression compression, ir::Nanos longest) {
  const std::vector<bool> trunk = trunk_of(graph);
  std::vector<Node> group(graph.nodes.size());
  std::vector<ir::Nanos> time(graph.nodes.size());  // of the group so far, by its first node
  std::optional<Node> region;                       // the first node past the last trunk node
  for (Node n = 0; n < group.size(); ++n) {
    group[n] = n;
    time[n] = graph.nodes[n].time;
    if (trunk[n]) {
      region.reset();  // all that the trunk node leads to stands behind it
    } else if (compression == Compression::Regions) {
      region = region.value_or(n);
      group[n] = *region;
    } else if (compression == Compression::Branches && graph.previous[n].size() == 1) {
      const Node before = graph.previous[n].front();
      if (!trunk[before] && graph.next[before].size() == 1 &&
          time[group[before]] <= longest - time[n]) {
        group[n] = group[before];
        time[group[n]] += time[n];
      }
    }
  }
  return group;
}

}  // namespace

std::string_view compression_name(Compression compression) {
  switch (compression) {
    case Compression::None:
      return "none";
    case Compression::Branches:
      return "branches";
    case Compression::Regions:
      return "regions";
  }
  XPIPE_CHECK(false) << "no such compression";
  return "";
}

LayerGraph compressed(const LayerGraph& graph, Compression compression, ir::Nanos longest) {
  const std::vector<Node> group = groups_of(graph, compression, longest);
  LayerGraph result{.nodes = {}, .next = {}, .previous = {}, .inputs = graph.inputs};
  std::vector<Node> place(group.size());  // by the first node of a group
  std::vector<ir::LayerEdge> edges;
  for (Node n = 0; n < group.size(); ++n) {
    if (group[n] == n) {
      place[n] = static_cast<Node>(result.nodes.size());
      result.nodes.emplace_back();
    }
    GraphNode& into = result.nodes[place[group[n]]];
    const GraphNode& node = graph.nodes[n];
    into.layers.insert(into.layers.end(), node.layers.begin(), node.layers.end());
    into.time += node.time;
    into.forward += node.forward;
    into.saved_bytes += node.saved_bytes;
    into.parameter_bytes += node.parameter_bytes;
    const bool leaves = graph.next[n].empty() || std::ranges::any_of(graph.next[n], [&](Node to) {
                          return group[to] != group[n];
                        });
    into.output_bytes += leaves ? node.output_bytes : 0;
    for (const Node before : graph.previous[n]) {
      if (group[before] != group[n]) {
        edges.push_back({place[group[before]], place[group[n]]});
      }
    }
  }
  for (GraphNode& node : result.nodes) {
    std::ranges::sort(node.layers);
  }
  set_edges(result, std::move(edges));
  return result;
}

Cuts bounded_antichains(const LayerGraph& graph, std::size_t most) {
  if (auto all = antichains(graph, most)) {
    return {.antichains = std::move(*all), .graph = graph};
  }
  constexpr int kFinest = 16;
  ir::Nanos whole = 0;
  for (const GraphNode& node : graph.nodes) {
    whole += node.time;
  }
  for (int halvings = kFinest; halvings >= 0; --halvings) {
    const ir::Nanos longest = whole >> halvings;
    LayerGraph smaller = compressed(graph, Compression::Branches, longest);
    if (auto found = antichains(smaller, most)) {
      return {std::move(*found), std::move(smaller), Compression::Branches, longest};
    }
  }
  LayerGraph chain = compressed(graph, Compression::Regions);
  auto found = antichains(chain, chain.nodes.size() + 1);
  XPIPE_CHECK(found.has_value()) << "a chain has as many antichains as nodes";
  return {std::move(*found), std::move(chain), Compression::Regions, whole};
}

}  // namespace xpipe::scheduler
