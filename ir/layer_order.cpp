#include "ir/layer_order.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <utility>

namespace xpipe::ir {

namespace {

/// Some ring among the layers that `missing` still waits for.
std::string describe_ring(const Profile& profile, const std::vector<std::uint32_t>& missing) {
  // Every layer left waits for another one left: walking back must meet itself.
  std::vector<std::uint32_t> source(profile.layers.size(), 0);
  std::uint32_t at = 0;
  for (const LayerEdge& edge : profile.edges) {
    if (missing[edge.from] > 0 && missing[edge.to] > 0) {
      source[edge.to] = edge.from;
      at = edge.to;
    }
  }
  std::vector<bool> seen(profile.layers.size(), false);
  while (!seen[at]) {
    seen[at] = true;
    at = source[at];
  }
  std::string text;
  const std::uint32_t begin = at;
  do {
    text += "\"" + profile.layers[at].name + "\" needs ";
    at = source[at];
  } while (at != begin);
  return text + "\"" + profile.layers[begin].name + "\"";
}

}  // namespace

Status arrange_layers(Profile& profile) {
  const auto count = static_cast<std::uint32_t>(profile.layers.size());
  std::vector<std::vector<std::uint32_t>> next(count);
  std::vector<std::uint32_t> missing(count, 0);
  for (const LayerEdge& edge : profile.edges) {
    next[edge.from].push_back(edge.to);
    ++missing[edge.to];
  }
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (missing[i] == 0) {
      ready.push(i);
    }
  }
  std::vector<std::uint32_t> place(count, 0);  // by layer of the file
  std::vector<LayerProfile> layers;
  while (!ready.empty()) {
    const std::uint32_t layer = ready.top();
    ready.pop();
    place[layer] = static_cast<std::uint32_t>(layers.size());
    layers.push_back(profile.layers[layer]);
    for (const std::uint32_t to : next[layer]) {
      if (--missing[to] == 0) {
        ready.push(to);
      }
    }
  }
  if (layers.size() < count) {
    return make_error(ErrorKind::BadInput, "profile-cycle", "edges",
                      "layers need each other in a ring: " + describe_ring(profile, missing));
  }
  profile.layers = std::move(layers);
  for (LayerEdge& edge : profile.edges) {
    edge = {place[edge.from], place[edge.to]};
  }
  std::sort(profile.edges.begin(), profile.edges.end());
  return {};
}

std::vector<LayerEdge> chain_edges(std::size_t layers) {
  std::vector<LayerEdge> edges;
  for (std::uint32_t i = 1; i < layers; ++i) {
    edges.push_back({i - 1, i});
  }
  return edges;
}

Status check_totals(const Profile& profile) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::int64_t time = profile.data_loading;
  std::int64_t bytes = 0;
  const auto add = [](std::int64_t& total, std::int64_t value) {
    if (total > kMost - value) {
      return false;
    }
    total += value;
    return true;
  };
  for (const LayerProfile& layer : profile.layers) {
    if (!add(time, layer.forward) || !add(time, layer.backward_input) ||
        !add(time, layer.backward_weight) || !add(time, layer.update.value_or(0)) ||
        !add(bytes, layer.output_bytes) || !add(bytes, layer.saved_bytes) ||
        !add(bytes, layer.parameter_bytes)) {
      return make_error(ErrorKind::BadInput, "profile-total", layer.name,
                        "the times or bytes up to this layer add up to more than " +
                            std::to_string(kMost) + ", which is too much to count");
    }
  }
  return {};
}

}  // namespace xpipe::ir
