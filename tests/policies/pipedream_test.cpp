// PipeDream: its schedule drawn, its delays and stored versions counted (P8; field cases D1, D2).
#include "policies/pipedream.h"

#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include "scheduler/compile.h"
#include "tests/policies/replay.h"

namespace xpipe::tests {
namespace {

std::vector<ir::Version> versions(const std::vector<PassRead>& reads) {
  std::vector<ir::Version> result;
  for (const PassRead& read : reads) {
    result.push_back(read.version);
  }
  return result;
}

TEST_CASE("pipedream: two stages, three mini-batches, with the stash") {
  const ir::Schedule schedule = compiled("pipedream", 2, 1, 3);
  CHECK(draw(schedule, 0) == "0 1 _ |0| 2 |1| _ |2|");
  CHECK(draw(schedule, 1) == "0 |0| 1 |1| 2 |2|");
  // B1 and B2 of stage 0 compute with what F1 and F2 read, one step behind: kept in slot 1
  CHECK(lane_text(schedule, 0) ==
        "0F0[s0:v0] 0F1[s0:v0] 0B0[s0:v0] 0STASH0[s0:v0>s1] 0STEP0[v0] "
        "0F2[s0:v1] 0B1[s1:v0] 0RELEASE1[s1] 0STASH1[s0:v1>s1] 0STEP1[v1] "
        "0B2[s1:v1] 0RELEASE2[s1] 0STEP2[v2]");
  CHECK(lane_text(schedule, 1) ==
        "1F0[s0:v0] 1B0[s0:v0] 1STEP0[v0] 1F1[s0:v1] 1B1[s0:v1] 1STEP1[v1] "
        "1F2[s0:v2] 1B2[s0:v2] 1STEP2[v2]");
}

TEST_CASE("pipedream: field case D1, four stages and eight mini-batches") {
  using List = std::vector<ir::Version>;
  const ir::Schedule schedule = compiled("pipedream", 4, 1, 8);
  const List expected[] = {{0, 0, 0, 0, 1, 2, 3, 4},
                           {0, 0, 0, 1, 2, 3, 4, 5},
                           {0, 0, 1, 2, 3, 4, 5, 6},
                           {0, 1, 2, 3, 4, 5, 6, 7}};
  for (std::uint32_t k = 0; k < 4; ++k) {
    CAPTURE(k);
    const StageReplay stage = replay_stage(schedule, k);
    CHECK(versions(stage.forwards) == expected[k]);
    CHECK(versions(stage.backwards) == expected[k]);
    CHECK(stage.versions_held == 4 - k);
    CHECK(schedule.stages[k].slots == 4 - k);
    for (std::uint32_t m = 0; m < 8; ++m) {
      CHECK(stage.step_from[m] - stage.forwards[m].version == std::min(m, 3 - k));
    }
  }
}

TEST_CASE("pipedream: field case D2, a stream shorter than the warm-up drains") {
  const std::uint32_t held[] = {2, 2, 2, 1};
  for (std::uint32_t n : {1U, 2U}) {
    const ir::Schedule schedule = compiled("pipedream", 4, 1, n);
    for (std::uint32_t k = 0; k < 4; ++k) {
      CAPTURE(k);
      const StageReplay stage = replay_stage(schedule, k);
      CHECK(std::count(stage.order.begin(), stage.order.end(), 'F') == n);
      CHECK(std::count(stage.order.begin(), stage.order.end(), 'B') == n);
      CHECK(std::count(stage.order.begin(), stage.order.end(), 'S') == n);
      CHECK(stage.last_version == n);
      CHECK(stage.versions_held == (n == 1 ? 1 : held[k]));
    }
  }
  const auto none = scheduler::compile(*registry().find("pipedream").value(), {4, 1, 0, {}},
                                       scheduler::chain_of(4));
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().kind == ir::ErrorKind::Usage);
  CHECK(none.error().to_string().find("--mini-batches: found 0") != std::string::npos);
}

TEST_CASE("pipedream: stage k is D-1-k behind, with D-k versions, on equal bits twice (P8)") {
  for (std::uint32_t d = 1; d <= 8; ++d) {
    for (std::uint32_t n : {1U, 2U, 3U, 5U, 8U, 20U}) {
      const ir::Schedule schedule = compiled("pipedream", d, 1, n);
      for (std::uint32_t k = 0; k < d; ++k) {
        CAPTURE(d);
        CAPTURE(n);
        CAPTURE(k);
        const StageReplay stage = replay_stage(schedule, k);
        CHECK(stage.faults.empty());
        CHECK(stage.predicts.empty());
        CHECK(stage.versions_held <= d - k);
        CHECK((n < 20 || stage.versions_held == d - k));
        for (std::uint32_t m = 0; m < n; ++m) {
          CHECK(stage.step_from[m] == m);
          CHECK(stage.forwards[m].version == m - std::min(m, d - 1 - k));
          CHECK(stage.forwards[m].content == stage.backwards[m].content);
        }
      }
    }
  }
}

TEST_CASE("pipedream: with vertical sync every stage is D-1 behind (P8)") {
  for (std::uint32_t d = 1; d <= 8; ++d) {
    for (std::uint32_t n : {1U, 2U, 3U, 5U, 8U, 20U}) {
      const ir::Schedule schedule = compiled("pipedream", d, 1, n, {{"vertical-sync", "true"}});
      for (std::uint32_t k = 0; k < d; ++k) {
        CAPTURE(d);
        CAPTURE(n);
        CAPTURE(k);
        const StageReplay stage = replay_stage(schedule, k);
        CHECK(stage.faults.empty());
        CHECK(stage.versions_held <= d);
        CHECK((n < 20 || stage.versions_held == d));
        for (std::uint32_t m = 0; m < n; ++m) {
          CHECK(stage.forwards[m].version == m - std::min(m, d - 1));
          CHECK(stage.forwards[m].content == stage.backwards[m].content);
        }
      }
    }
  }
}

}  // namespace
}  // namespace xpipe::tests
