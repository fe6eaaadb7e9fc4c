// Small random networks for brute force.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include "ir/profile.h"

namespace xpipe::tests {

/// Layers that all hang on layer 0; `density` percent of the further edges. A chain at density 0.
inline ir::Profile random_network(std::uint32_t seed, std::uint32_t layers, std::uint32_t density) {
  std::mt19937 random(seed);
  const auto below = [&random](std::uint32_t n) {
    return static_cast<std::uint32_t>(random() % n);
  };
  ir::Profile profile;
  profile.samples = 8;
  for (std::uint32_t l = 0; l < layers; ++l) {
    // Few values, so that ties and layers that cost nothing are common.
    profile.layers.push_back({.name = "layer" + std::to_string(l),
                              .forward = 1000 * below(4),
                              .backward_input = 500 * below(4),
                              .backward_weight = 0,
                              .output_bytes = 1000 * below(5),
                              .saved_bytes = 1000 * below(6),
                              .saved_for_weight_bytes = 0,
                              .parameter_bytes = 1000 * below(5)});
    if (l > 0) {
      profile.edges.push_back({density == 0 ? l - 1 : below(l), l});
    }
    for (std::uint32_t from = 0; density > 0 && from + 1 < l; ++from) {
      if (below(100) < density && profile.edges.back().from != from) {
        profile.edges.push_back({from, l});
      }
    }
  }
  std::sort(profile.edges.begin(), profile.edges.end());
  profile.edges.erase(std::unique(profile.edges.begin(), profile.edges.end()), profile.edges.end());
  return profile;
}

}  // namespace xpipe::tests
