#include "scheduler/partition.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

namespace xpipe::scheduler {
namespace {

using ir::Nanos;

/// Layers of these forward-plus-backward times.
ir::Profile layers_of(const std::vector<Nanos>& times) {
  ir::Profile profile;
  profile.samples = 1;
  for (const Nanos time : times) {
    profile.layers.push_back({.name = "layer" + std::to_string(profile.layers.size()),
                              .forward = time - time / 2,
                              .backward_input = time / 4,
                              .backward_weight = time / 2 - time / 4});
  }
  return profile;
}

ir::Profile equal_layers(std::size_t count) {
  return layers_of(std::vector<Nanos>(count, 3000));
}

Partition cut(const ir::Profile& profile, std::uint32_t stages) {
  const auto result = balanced_partition(profile, stages);
  REQUIRE(result.ok());
  return result.value();
}

/// The rules of the header, tried on every cut.
Partition best_of_all_cuts(const std::vector<Nanos>& times, std::uint32_t stages) {
  using Key = std::tuple<Nanos, Nanos, Nanos, std::vector<std::int64_t>>;
  std::optional<Key> best;
  Partition counts;
  std::function<void(std::size_t)> extend = [&](std::size_t begin) {
    if (counts.size() == stages) {
      if (begin != times.size()) {
        return;
      }
      Key key{0, 0, 0, {}};
      std::size_t layer = 0;
      for (const std::uint32_t count : counts) {
        Nanos load = 0;
        for (std::uint32_t i = 0; i < count; ++i) {
          load += times[layer++];
        }
        std::get<0>(key) = std::max(std::get<0>(key), load);
        std::get<1>(key) += load * load;
        std::get<2>(key) += Nanos{count} * count;
        std::get<3>(key).push_back(-std::int64_t{count});
      }
      if (!best.has_value() || key < *best) {
        best = key;
      }
      return;
    }
    for (std::size_t end = begin + 1; end <= times.size(); ++end) {
      counts.push_back(static_cast<std::uint32_t>(end - begin));
      extend(end);
      counts.pop_back();
    }
  };
  extend(0);
  Partition result;
  for (const std::int64_t count : std::get<3>(*best)) {
    result.push_back(static_cast<std::uint32_t>(-count));
  }
  return result;
}

TEST_CASE("partition: equal layers differ by at most one, larger stages first (B1, B2)") {
  CHECK(cut(equal_layers(5), 4) == Partition{2, 1, 1, 1});
  CHECK(cut(equal_layers(10), 3) == Partition{4, 3, 3});
  CHECK(cut(equal_layers(30), 4) == Partition{8, 8, 7, 7});
  CHECK(cut(equal_layers(38), 8) == Partition{5, 5, 5, 5, 5, 5, 4, 4});
  Partition b1(10, 3);
  b1.insert(b1.end(), 6, 2);
  CHECK(cut(equal_layers(42), 16) == b1);
  Partition b2(16, 3);
  b2.insert(b2.end(), 16, 2);
  CHECK(cut(equal_layers(80), 32) == b2);
  CHECK(cut(equal_layers(7), 1) == Partition{7});
  CHECK(cut(equal_layers(7), 7) == Partition(7, 1));
}

TEST_CASE("partition: the slowest stage decides, ties break the same way every time (B3)") {
  const ir::Profile profile = layers_of({1000, 1000, 1000, 1000, 8000});
  for (int i = 0; i < 20; ++i) {
    CHECK(cut(profile, 2) == Partition{4, 1});
  }
  CHECK(bottleneck(profile, {4, 1}) == 8000);
}

TEST_CASE("partition: layers that cost nothing are placed and no stage is empty (F2)") {
  CHECK(cut(layers_of({3000, 0, 0, 3000}), 4) == Partition{1, 1, 1, 1});
  CHECK(cut(layers_of({0, 0, 0, 0, 0, 0, 0, 0}), 4) == Partition{2, 2, 2, 2});
  CHECK(cut(layers_of({0, 0, 0, 9}), 3) == Partition{2, 1, 1});
}

TEST_CASE("partition: more stages than layers is a usage error that names both") {
  for (const std::uint32_t stages : {4U, 0U}) {
    const auto result = balanced_partition(equal_layers(3), stages);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().kind == ir::ErrorKind::Usage);
    const std::string text = result.error().to_string();
    CHECK(text.find("3 layers") != std::string::npos);
    CHECK(text.find(std::to_string(stages) + " stages") != std::string::npos);
  }
}

TEST_CASE("partition: equals the best of all cuts, whatever the layers") {
  CHECK(rc::check([](const std::vector<std::uint8_t>& seed) {
    std::vector<Nanos> times;
    for (const std::uint8_t s : seed) {
      if (times.size() < 11) {
        times.push_back(s % 9);  // many ties and zeros
      }
    }
    RC_PRE(!times.empty());
    for (std::uint32_t stages = 1; stages <= times.size(); ++stages) {
      const auto result = balanced_partition(layers_of(times), stages);
      RC_ASSERT(result.ok());
      RC_ASSERT(result.value() == best_of_all_cuts(times, stages));
    }
  }));
}

TEST_CASE("partition: thousands of layers are cut exactly: no smaller bottleneck exists") {
  std::vector<Nanos> times;
  std::uint64_t state = 7;
  for (int i = 0; i < 5000; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    times.push_back(static_cast<Nanos>((state >> 33) % 1'000'000'000));
  }
  const ir::Profile profile = layers_of(times);
  const Partition counts = cut(profile, 64);
  CHECK(check_partition(profile, counts).ok());
  // Filling stages greedily to one nanosecond less needs more than 64 of them.
  const Nanos limit = bottleneck(profile, counts) - 1;
  int used = 1;
  Nanos load = 0;
  for (const Nanos time : times) {
    if (load + time > limit) {
      ++used;
      load = 0;
    }
    load += time;
  }
  CHECK(used > 64);
}

TEST_CASE("partition: one given by hand is taken, or refused with the counts") {
  const ir::Profile profile = equal_layers(8);
  CHECK(check_partition(profile, {3, 5}).ok());

  struct Row {
    Partition counts;
    const char* said;
  };

  const std::vector<Row> rows = {
      {{3, 4}, "3,4 places 7 layers, the profile has 8; layer 7 (layer7)"},
      {{4, 5}, "4,5 places 9 layers, the profile has 8; there is no layer 8"},
      {{8, 0}, "stage 1 of 8,0 has no layer"},
      {{}, "names no stage"},
  };
  for (const Row& row : rows) {
    const ir::Status status = check_partition(profile, row.counts);
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().kind == ir::ErrorKind::Usage);
    CHECK_MESSAGE(status.error().to_string().find(row.said) != std::string::npos,
                  status.error().to_string());
  }
}

}  // namespace
}  // namespace xpipe::scheduler
