#include "scheduler/antichains.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "scheduler/graph_compression.h"
#include "tests/scheduler/random_graphs.h"
#include "tests/scheduler/shared_profiles.h"

namespace xpipe::scheduler {
namespace {

using Edges = std::vector<ir::LayerEdge>;

/// Layer i takes 2^i ns, has an output of 10^i bytes and as many bytes of parameters.
ir::Profile network(std::uint32_t layers, Edges edges) {
  ir::Profile profile;
  profile.samples = 1;
  std::int64_t power = 1;
  for (std::uint32_t l = 0; l < layers; ++l, power *= 10) {
    profile.layers.push_back({.name = "layer" + std::to_string(l),
                              .forward = std::int64_t{1} << l,
                              .output_bytes = power,
                              .parameter_bytes = power});
  }
  profile.edges = std::move(edges);
  return profile;
}

std::string names(const NodeSet& part) {
  std::string text;
  for (auto n = part.find_first(); n != NodeSet::npos; n = part.find_next(n)) {
    text += static_cast<char>('a' + n);
  }
  return text;
}

std::vector<std::string> parts_of(const LayerGraph& graph) {
  std::vector<std::string> parts;
  const auto found = antichains(graph, 1000);
  REQUIRE(found.has_value());
  for (const Antichain& antichain : *found) {
    parts.push_back(names(antichain.part));
  }
  return parts;
}

//      +- b - c -+
//  a --|         |-- e
//      +- d -----+
const Edges kFork = {{0, 1}, {0, 3}, {1, 2}, {2, 4}, {3, 4}};

TEST_CASE("antichains: of a fork, every part that a cut can leave, inner parts first") {
  const LayerGraph graph = layer_graph(network(5, kFork));
  const std::vector<std::string> parts = parts_of(graph);
  CHECK(parts.size() == 7);
  CHECK(std::set<std::string>(parts.begin(), parts.end()) ==
        std::set<std::string>{"a", "ab", "abc", "ad", "abd", "abcd", "abcde"});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t j = i + 1; j < parts.size(); ++j) {
      const bool contains = std::ranges::includes(parts[i], parts[j]);
      CHECK_MESSAGE(!contains, parts[j], " stands behind ", parts[i]);
    }
  }
}

TEST_CASE("antichains: sums are over the part, each tensor that leaves it counts once") {
  const auto found = antichains(layer_graph(network(5, kFork)), 1000);
  for (const Antichain& antichain : *found) {
    const std::string part = names(antichain.part);
    CAPTURE(part);
    ir::Nanos time = 0;
    for (const char c : part) {
      time += 1 << (c - 'a');
    }
    CHECK(antichain.time == time);
    // Both b and d need a's output: it leaves ab and ad, no longer abd.
    const ir::Bytes crossing = part == "a"      ? 1
                               : part == "ab"   ? 1 + 10
                               : part == "abc"  ? 1 + 100
                               : part == "ad"   ? 1 + 1000
                               : part == "abd"  ? 10 + 1000
                               : part == "abcd" ? 100 + 1000
                                                : 0;
    CHECK(antichain.crossing_bytes == crossing);
    // The optimizer counts a with b (d is not before b) and with d, so with {b, d}, too; and the
    // network's own output.
    const ir::Bytes counted = part == "abd" || part == "abcd" ? crossing + 1
                              : part == "abcde"               ? 10000
                                                              : crossing;
    CHECK(antichain.output_bytes == counted);
  }
}

TEST_CASE("antichains: more than wanted are none") {
  const LayerGraph graph = layer_graph(network(5, kFork));
  CHECK(antichains(graph, 7).has_value());
  CHECK_FALSE(antichains(graph, 6).has_value());
}

TEST_CASE("antichains: a second source is taken when it is needed, and the last part is whole") {
  // a -> c <- b -> d, e by itself
  CHECK(parts_of(layer_graph(network(5, {{0, 2}, {1, 2}, {1, 3}}))) ==
        std::vector<std::string>{"a", "abc", "abcd", "abcde"});
}

/// All sets that hold node 0 and, with a node, all that it needs.
std::set<std::string> all_parts(const ir::Profile& profile) {
  std::set<std::string> parts;
  for (std::uint32_t set = 1; set < 1U << profile.layers.size(); set += 2) {
    const bool closed = std::ranges::all_of(profile.edges, [set](const ir::LayerEdge& edge) {
      return (set >> edge.to & 1U) == 0 || (set >> edge.from & 1U) == 1;
    });
    if (closed) {
      std::string text;
      for (std::uint32_t l = 0; l < profile.layers.size(); ++l) {
        text += (set >> l & 1U) == 1 ? std::string(1, static_cast<char>('a' + l)) : "";
      }
      parts.insert(text);
    }
  }
  return parts;
}

TEST_CASE("antichains: of random networks with one source, exactly the sets closed under needs") {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const ir::Profile profile = tests::random_network(seed, 3 + seed % 8, 5 + seed % 40);
    const std::vector<std::string> parts = parts_of(layer_graph(profile));
    CHECK(std::set<std::string>(parts.begin(), parts.end()) == all_parts(profile));
    CHECK(std::set<std::string>(parts.begin(), parts.end()).size() == parts.size());
  }
}

void check_count(const char* model, std::size_t states) {
  CAPTURE(model);
  if (const auto profile = tests::shared_profile(model)) {
    const auto found = antichains(layer_graph(*profile), states);
    REQUIRE(found.has_value());
    CHECK(found->size() == states);
    CHECK(found->back().part.all());
  }
}

TEST_CASE("antichains: as many as PipeDream's optimizer finds (numbers.md 2.2)") {
  check_count("vgg16", 40);
  check_count("alexnet", 22);
  check_count("resnet50", 240);
  check_count("resnet101", 410);
  check_count("squeezenet1_0", 99);
  check_count("gnmt_large", 1495);
}

TEST_SUITE("slow") {
  TEST_CASE("antichains: Inception-V3 has 221,564 of them (numbers.md 2.2)") {
    check_count("inception_v3", 221'564);
  }
}

TEST_CASE("compression: what follows one another within a branch becomes one, the trunk stays") {
  //          +- c - d -+
  //  a - b --|         |-- f - g        branches: c and d are one
  //          +- e -----+                regions: c, d and e are one
  const ir::Profile profile = network(7, {{0, 1}, {1, 2}, {1, 4}, {2, 3}, {3, 5}, {4, 5}, {5, 6}});
  const LayerGraph graph = layer_graph(profile);
  const LayerGraph branches = compressed(graph, Compression::Branches);
  REQUIRE(branches.nodes.size() == 6);
  CHECK(branches.nodes[2].layers == std::vector<std::uint32_t>{2, 3});
  CHECK(branches.nodes[2].time == 4 + 8);
  CHECK(branches.nodes[2].parameter_bytes == 100 + 1000);
  CHECK(branches.nodes[2].output_bytes == 1000);  // d's; c's is used within
  CHECK(branches.next[2] == std::vector<std::uint32_t>{4});
  const LayerGraph regions = compressed(graph, Compression::Regions);
  REQUIRE(regions.nodes.size() == 5);
  CHECK(regions.nodes[2].layers == std::vector<std::uint32_t>{2, 3, 4});
  CHECK(regions.nodes[2].output_bytes == 1000 + 10000);
  CHECK(antichains(regions, 100)->size() == 5);
}

TEST_CASE("compression: a chain is not compressed at all") {
  const LayerGraph graph = layer_graph(network(4, {{0, 1}, {1, 2}, {2, 3}}));
  for (const Compression compression : {Compression::Branches, Compression::Regions}) {
    CHECK(compressed(graph, compression).nodes.size() == 4);
  }
}

TEST_CASE("compression: its parts are parts of the network, whole groups at a time") {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const ir::Profile profile = tests::random_network(seed, 4 + seed % 7, 5 + seed % 30);
    const std::set<std::string> all = all_parts(profile);
    for (const Compression compression : {Compression::Branches, Compression::Regions}) {
      const LayerGraph graph = compressed(layer_graph(profile), compression);
      const auto found = antichains(graph, 1000);
      REQUIRE(found.has_value());
      for (const Antichain& antichain : *found) {
        std::string layers;
        for (auto n = antichain.part.find_first(); n != NodeSet::npos;
             n = antichain.part.find_next(n)) {
          for (const std::uint32_t l : graph.nodes[n].layers) {
            layers += static_cast<char>('a' + l);
          }
        }
        std::ranges::sort(layers);
        CHECK_MESSAGE(all.contains(layers), layers);
      }
    }
  }
}

TEST_CASE("compression: only as much as the bound asks for") {
  const LayerGraph graph = layer_graph(network(5, kFork));
  CHECK(bounded_antichains(graph, 7).compression == Compression::None);
  CHECK(bounded_antichains(graph, 6).compression == Compression::Branches);
  CHECK(bounded_antichains(graph, 4).compression == Compression::Regions);
  if (const auto inception = tests::shared_profile("inception_v3")) {
    const Cuts cuts = bounded_antichains(layer_graph(*inception), 2000);
    CHECK(cuts.compression == Compression::Branches);
    CHECK(cuts.antichains.size() <= 2000);
    CHECK(cuts.longest <= 689038000 / 64);  // of the 689 ms of the whole network
    CHECK(antichains(compressed(layer_graph(*inception), Compression::Branches), 5000)->size() ==
          1332);
  }
}

}  // namespace
}  // namespace xpipe::scheduler
