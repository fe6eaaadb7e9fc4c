#include "scheduler/antichains.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/topological_sort.hpp>

#include "ir/status.h"

namespace xpipe::scheduler {

namespace {

using Node = std::uint32_t;
using Steps = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS>;

struct SetHash {
  std::size_t operator()(const NodeSet& set) const { return boost::hash_value(set); }
};

/// Walks from antichain to antichain, breadth first.
class Walk {
 public:
  explicit Walk(const LayerGraph& graph) : graph_(graph), nodes_(graph.nodes.size()) {
    for (Node n = 0; n < nodes_; ++n) {
      NodeSet needs(nodes_);
      for (const Node before : graph_.previous[n]) {
        needs |= needs_[before];
        needs.set(before);
      }
      needs_.push_back(std::move(needs));
    }
    for (Node n = 0; n < nodes_; ++n) {
      NodeSet open(nodes_);
      for (auto p = needs_[n].find_first(); p != NodeSet::npos; p = needs_[n].find_next(p)) {
        if (std::ranges::any_of(graph_.next[p],
                                [&](Node to) { return to != n && !needs_[n].test(to); })) {
          open.set(p);
        }
      }
      open_.push_back(std::move(open));
    }
  }

  bool run(std::size_t most) {
    const auto source = static_cast<Node>(std::distance(
        graph_.previous.begin(),
        std::ranges::find_if(graph_.previous, [](const auto& from) { return from.empty(); })));
    if (!visit({source}, std::nullopt, most)) {
      return false;
    }
    for (std::size_t at = 0; at < members_.size(); ++at) {
      if (!step_from(at, most)) {
        return false;
      }
    }
    return close(most);
  }

  [[nodiscard]] std::vector<Antichain> in_order() const {
    std::vector<Steps::vertex_descriptor> reversed;
    boost::topological_sort(steps_, std::back_inserter(reversed));
    std::vector<Antichain> result;
    result.reserve(reversed.size());
    for (auto v = reversed.rbegin(); v != reversed.rend(); ++v) {
      result.push_back(sums_of(*v));
    }
    return result;
  }

 private:
  /// The nodes that a step may leave: open ones, then the antichain's own.
  [[nodiscard]] std::vector<Node> border_of(const std::vector<Node>& members) const {
    NodeSet open(nodes_);
    for (const Node member : members) {
      open |= open_[member];
    }
    std::vector<Node> border;
    for (auto p = open.find_first(); p != NodeSet::npos; p = open.find_next(p)) {
      border.push_back(static_cast<Node>(p));
    }
    border.insert(border.end(), members.begin(), members.end());
    return border;
  }

  /// `border` with `to` in the place of `from`, without nodes that another one needs.
  [[nodiscard]] std::vector<Node> replaced(std::vector<Node> border, Node from, Node to) const {
    std::ranges::replace(border, from, to);
    NodeSet needed(nodes_);
    for (const Node n : border) {
      needed |= needs_[n];
    }
    std::erase_if(border, [&](Node n) { return needed.test(n); });
    std::vector<Node> once;
    for (const Node n : border) {
      if (std::ranges::find(once, n) == once.end()) {
        once.push_back(n);
      }
    }
    return once;
  }

  bool step_from(std::size_t at, std::size_t most) {
    const std::vector<Node> border = border_of(members_[at]);
    for (const Node from : border) {
      for (const Node to : graph_.next[from]) {
        if (!parts_[at]->test(to) && !visit(replaced(border, from, to), at, most)) {
          return false;
        }
      }
    }
    return true;
  }

  /// Notes an antichain unless it is known, and the step to it.
  bool visit(std::vector<Node> members, std::optional<std::size_t> from, std::size_t most) {
    NodeSet part(nodes_);
    for (const Node member : members) {
      part |= needs_[member];
      part.set(member);
    }
    const auto [known, is_new] = known_.try_emplace(std::move(part), members_.size());
    if (is_new) {
      if (members_.size() == most) {
        return false;
      }
      members_.push_back(std::move(members));
      parts_.push_back(&known->first);
      boost::add_vertex(steps_);
    }
    if (from) {
      boost::add_edge(*from, known->second, steps_);
    }
    return true;
  }

  /// Where no step leads to the whole network, as another source feeds a part of its own.
  bool close(std::size_t most) {
    NodeSet all(nodes_);
    all.set();
    if (known_.contains(all)) {
      return true;
    }
    std::vector<Node> members;
    for (Node n = 0; n < nodes_; ++n) {
      if (graph_.next[n].empty()) {
        members.push_back(n);
      }
    }
    const std::size_t count = members_.size();
    if (!visit(std::move(members), std::nullopt, most)) {
      return false;
    }
    for (std::size_t v = 0; v < count; ++v) {
      boost::add_edge(v, count, steps_);
    }
    return true;
  }

  [[nodiscard]] Antichain sums_of(std::size_t v) const {
    Antichain sums{.part = *parts_[v]};
    for (auto n = sums.part.find_first(); n != NodeSet::npos; n = sums.part.find_next(n)) {
      const GraphNode& node = graph_.nodes[n];
      sums.time += node.time;
      sums.forward += node.forward;
      sums.saved_bytes += node.saved_bytes;
      sums.parameter_bytes += node.parameter_bytes;
      if (std::ranges::any_of(graph_.next[n], [&](Node to) { return !sums.part.test(to); })) {
        sums.crossing_bytes += node.output_bytes;
      }
    }
    for (const Node n : border_of(members_[v])) {
      sums.output_bytes += graph_.nodes[n].output_bytes;
    }
    return sums;
  }

  const LayerGraph& graph_;
  std::size_t nodes_;
  std::vector<NodeSet> needs_;  ///< by node: all nodes that lead to it
  std::vector<NodeSet> open_;   ///< of those, by node: which have an edge elsewhere
  std::unordered_map<NodeSet, std::size_t, SetHash> known_;  ///< part to antichain
  std::vector<std::vector<Node>> members_;                   ///< by antichain, in order of finding
  std::vector<const NodeSet*> parts_;                        ///< by antichain; keys of known_
  Steps steps_;
};

}  // namespace

std::optional<std::vector<Antichain>> antichains(const LayerGraph& graph, std::size_t most) {
  XPIPE_CHECK(!graph.nodes.empty()) << "antichains of nothing";
  Walk walk(graph);
  if (!walk.run(most)) {
    return std::nullopt;
  }
  return walk.in_order();
}

}  // namespace xpipe::scheduler
