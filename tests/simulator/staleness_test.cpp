#include "simulator/staleness.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "simulator/slot_life.h"
#include "tests/simulator/replay_helpers.h"

namespace xpipe::tests {
namespace {

using simulator::measure_staleness;
using simulator::StageStaleness;
using simulator::VersionRead;

std::vector<ir::Version> versions(const std::vector<VersionRead>& reads) {
  std::vector<ir::Version> result;
  for (const VersionRead& read : reads) {
    result.push_back(read.version);
  }
  return result;
}

TEST_CASE("staleness: pipedream's versions and ramp, stage by stage (field case D1)") {
  const auto stages = measure_staleness(schedule_of("pipedream", {4, 1, 8}));
  REQUIRE(stages.size() == 4);
  using Versions = std::vector<ir::Version>;
  CHECK(versions(stages[0].forward) == Versions{0, 0, 0, 0, 1, 2, 3, 4});
  CHECK(versions(stages[1].forward) == Versions{0, 0, 0, 1, 2, 3, 4, 5});
  CHECK(versions(stages[2].forward) == Versions{0, 0, 1, 2, 3, 4, 5, 6});
  CHECK(versions(stages[3].forward) == Versions{0, 1, 2, 3, 4, 5, 6, 7});
  for (std::int64_t k = 0; k < 4; ++k) {
    const StageStaleness& stage = stages[static_cast<std::size_t>(k)];
    CAPTURE(k);
    for (std::int64_t m = 0; m < 8; ++m) {
      CHECK(stage.forward[static_cast<std::size_t>(m)].staleness == std::min(m, 3 - k));
    }
    CHECK(stage.backward == stage.forward);  // stashed: both passes read one version
    CHECK(stage.is_steady);
    CHECK(stage.steady_from == 3 - k);
    CHECK(stage.forward_min == 3 - k);
    CHECK(stage.forward_max == 3 - k);
    CHECK(stage.peak.versions_held == 4 - k);
    CHECK(stage.peak.stash_slots == 3 - k);
    CHECK(stage.peak.prediction_slots == 0);
  }
}

TEST_CASE("staleness: a stream shorter than the warm-up caps what is held (field case D2)") {
  const auto two = measure_staleness(schedule_of("pipedream", {4, 1, 2}));
  const std::vector<std::uint32_t> held = {2, 2, 2, 1};
  for (std::size_t k = 0; k < 4; ++k) {
    CHECK(two[k].peak.versions_held == held[k]);
  }
  for (const StageStaleness& stage : measure_staleness(schedule_of("pipedream", {4, 1, 1}))) {
    CHECK(stage.peak.versions_held == 1);
    CHECK(stage.forward_max == 0);
  }
}

TEST_CASE("staleness: gpipe is never stale and keeps one version") {
  for (const StageStaleness& stage : measure_staleness(schedule_of("gpipe", {4, 3, 5}))) {
    CHECK(stage.steady_from == 0);
    CHECK(stage.forward_max == 0);
    CHECK(stage.backward_max == 0);
    CHECK(stage.predict_forward == 0);
    CHECK(stage.peak == simulator::StorageCount{1, 0, 0});
  }
}

TEST_CASE("staleness: xpipe's bellwether lacks ceil((D-1-k)/T) updates, and all T with it") {
  // methods.md 1.3, `local`, p = 0; the backward is not stale. Distances: its table, floor.
  for (const std::uint32_t d : {2U, 3U, 4U, 8U}) {
    for (const std::uint32_t t : {1U, 2U, 4U}) {
      const auto stages = measure_staleness(schedule_of("xpipe", {d, t, 16}));
      for (std::uint32_t k = 0; k < d; ++k) {
        CAPTURE(d);
        CAPTURE(t);
        CAPTURE(k);
        const std::int64_t missing = (d - 1 - k + t - 1) / t;
        CHECK(stages[k].is_steady);
        CHECK(stages[k].forward_min == missing);
        CHECK(stages[k].forward_max == missing);
        CHECK(stages[k].backward_min == 0);
        CHECK(stages[k].backward_max == 0);
        CHECK(stages[k].predict_forward == (k / 2 + d - k - 1 + t - 1) / t);
        CHECK(stages[k].predict_backward == (k / 2 + t - 1) / t);
        CHECK(stages[k].peak.versions_held <= 3);
        CHECK(stages[k].peak.versions_held ==
              1 + stages[k].peak.stash_slots + stages[k].peak.prediction_slots);
      }
    }
  }
}

TEST_CASE("staleness: without prediction xpipe's later micro-batches see newer weights") {
  // methods.md P6: micro-batch p of a mini-batch lacks max(0, ceil((D-1-k-p)/T)) updates.
  const std::uint32_t d = 4;
  const std::uint32_t t = 2;
  const auto stages = measure_staleness(schedule_of("xpipe", {d, t, 10}, {{"predict", "none"}}));
  for (std::uint32_t k = 0; k < d; ++k) {
    for (std::uint32_t p = 0; p < t; ++p) {
      const std::int64_t lag = static_cast<std::int64_t>(d) - 1 - k - p;
      const std::int64_t missing = lag > 0 ? (lag + t - 1) / t : 0;
      CHECK_MESSAGE(stages[k].forward[8 * t + p].staleness == missing, "stage ", k, " p ", p);
    }
    CHECK(stages[k].backward_max == 0);
    CHECK(stages[k].peak.versions_held == 1);
  }
  CHECK(stages[0].forward_min == 1);
  CHECK(stages[0].forward_max == 2);
}

TEST_CASE("staleness: what is measured is what the tasks say they read") {
  for (const char* policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    for (const std::uint32_t d : {1U, 3U, 6U}) {
      const ir::Schedule schedule = schedule_of(policy, {d, 2, 5});
      const auto stages = measure_staleness(schedule);
      for (const ir::Task& task : schedule.tasks) {
        const ir::WeightRead* said = ir::weights_read(task);
        if (said == nullptr) {
          continue;
        }
        const StageStaleness& stage = stages[ir::index_of(task.stage)];
        const auto& reads = task.kind() == ir::TaskKind::Forward ? stage.forward : stage.backward;
        const VersionRead& found = reads[ir::index_of(*ir::micro_batch_of(task))];
        CHECK(found.version == said->version);
        CHECK(found.distance == said->distance);
      }
    }
  }
}

TEST_CASE("staleness: a lie in a task does not change what is measured") {
  ir::Schedule schedule = schedule_of("pipedream", {3, 1, 4});
  const auto before = measure_staleness(schedule);
  for (ir::Task& task : schedule.tasks) {
    if (auto* forward = std::get_if<ir::Forward>(&task.payload)) {
      forward->weights.version = 99;
      forward->weights.distance = 7;
    }
  }
  const auto after = measure_staleness(schedule);
  for (std::size_t k = 0; k < before.size(); ++k) {
    CHECK(after[k].forward == before[k].forward);
  }
}

TEST_CASE("staleness: a ramp that does not end is told from a steady state") {
  const auto stages = measure_staleness(schedule_of("pipedream", {8, 1, 4}));
  CHECK_FALSE(stages[0].is_steady);  // 0, 1, 2, 3
  CHECK(stages[0].steady_from == 2);
  CHECK(stages[0].forward_min == 2);
  CHECK(stages[0].forward_max == 3);
  CHECK(stages[7].is_steady);
}

}  // namespace
}  // namespace xpipe::tests
