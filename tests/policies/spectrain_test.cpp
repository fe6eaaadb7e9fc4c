// SpecTrain: the paper's example, both variants, and its kinship with XPipe at T = 1 (P7).
#include "policies/spectrain.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/policies/replay.h"

namespace xpipe::tests {
namespace {

TEST_CASE("spectrain: the paper's example, three stages, a steady mini-batch") {
  // s = 2, 1, 1 at the forward and 0, 0, 1 at the backward. The paper says that the second and the
  // third stage start from one version: it counts by time. Counted in its own updates, stage k has
  // made 2 - k fewer than sequential training at the forward, none fewer at the backward.
  const ir::Schedule schedule = compiled("spectrain", 3, 1, 10);
  const ir::Distance forward[] = {2, 1, 1};
  const ir::Distance backward[] = {0, 0, 1};
  const ir::Version behind[] = {2, 1, 0};
  for (std::uint32_t k = 0; k < 3; ++k) {
    CAPTURE(k);
    const StageReplay stage = replay_stage(schedule, k);
    CHECK(stage.forwards[5].distance == forward[k]);
    CHECK(stage.backwards[5].distance == backward[k]);
    CHECK(stage.forwards[5].version == 5 - behind[k]);
    CHECK(stage.backwards[5].version == 5);
  }
}

TEST_CASE("spectrain: variant 1 predicts before each pass, less at the start") {
  const ir::Schedule schedule = compiled("spectrain", 3, 1, 3);
  CHECK(draw(schedule, 0) == "0 1 2 _ _ |0| _ |1| _ |2|");
  CHECK(draw(schedule, 2) == "0 |0| 1 |1| 2 |2|");
  CHECK(lane_text(schedule, 0) ==
        "0F0[s0:v0] 0PREDICT_F1[s0:v0>s1+1] 0F1[s1:v0+1] 0PREDICT_F2[s0:v0>s1+2] 0F2[s1:v0+2] "
        "0B0[s0:v0] 0STEP0[v0] 0B1[s0:v1] 0STEP1[v1] 0B2[s0:v2] 0STEP2[v2]");
  CHECK(lane_text(schedule, 2) ==
        "2PREDICT_F0[s0:v0>s1+1] 2F0[s1:v0+1] 2PREDICT_B0[s0:v0>s1+1] 2B0[s1:v0+1] 2STEP0[v0] "
        "2PREDICT_F1[s0:v1>s1+1] 2F1[s1:v1+1] 2PREDICT_B1[s0:v1>s1+1] 2B1[s1:v1+1] 2STEP1[v1] "
        "2PREDICT_F2[s0:v2>s1+1] 2F2[s1:v2+1] 2PREDICT_B2[s0:v2>s1+1] 2B2[s1:v2+1] 2STEP2[v2]");
}

TEST_CASE("spectrain: variant 2 computes the backward on its forward's copy") {
  const ir::Schedule schedule = compiled("spectrain", 2, 1, 3, {{"variant", "2"}});
  CHECK(lane_text(schedule, 0) ==
        "0F0[s0:v0] 0PREDICT_F1[s0:v0>s1+1] 0F1[s1:v0+1] 0B0[s0:v0] 0STEP0[v0] "
        "0PREDICT_F2[s0:v1>s2+1] 0F2[s2:v1+1] 0B1[s1:v0+1] 0STEP1[v1] 0B2[s2:v1+1] 0STEP2[v2]");
  CHECK(lane_text(schedule, 1) ==
        "1F0[s0:v0] 1B0[s0:v0] 1STEP0[v0] 1F1[s0:v1] 1B1[s0:v1] 1STEP1[v1] "
        "1F2[s0:v2] 1B2[s0:v2] 1STEP2[v2]");
}

TEST_CASE("spectrain: distances by stage in both variants, capped at the start of the segment") {
  for (std::uint32_t d = 1; d <= 8; ++d) {
    for (std::uint32_t n : {1U, 2U, 5U, 12U}) {
      const ir::Schedule paper = compiled("spectrain", d, 1, n);
      const ir::Schedule repository = compiled("spectrain", d, 1, n, {{"variant", "2"}});
      for (std::uint32_t k = 0; k < d; ++k) {
        CAPTURE(d);
        CAPTURE(n);
        CAPTURE(k);
        const StageReplay one = replay_stage(paper, k);
        const StageReplay two = replay_stage(repository, k);
        for (std::uint32_t m = 0; m < n; ++m) {
          CHECK(one.forwards[m].distance == std::min(k / 2 + d - k - 1, m + k / 2));
          CHECK(one.backwards[m].distance == k / 2);
          CHECK(one.backwards[m].version == m);
          CHECK(two.forwards[m].distance == std::min(d - k - 1, m));
          // variant 2 aims at what sequential training would read
          CHECK(two.forwards[m].version + two.forwards[m].distance == m);
          CHECK(two.backwards[m].content == two.forwards[m].content);
        }
        CHECK(one.versions_held <= 2);
        CHECK(two.versions_held <= (k + 1 == d ? 1 : d - k + 1));
      }
    }
  }
}

TEST_CASE("spectrain: variant 1 is XPipe with one micro-batch, the paper's s and floor (P7)") {
  for (std::uint32_t d = 1; d <= 8; ++d) {
    for (std::uint32_t n : {1U, 2U, 3U, 5U, 8U, 12U}) {
      const ir::Schedule spectrain = compiled("spectrain", d, 1, n);
      const ir::Schedule xpipe = compiled("xpipe", d, 1, n);
      CHECK(spectrain.tasks == xpipe.tasks);
      CHECK(spectrain.lanes == xpipe.lanes);
      CHECK(spectrain.edges == xpipe.edges);
    }
  }
}

TEST_CASE("spectrain: gamma is a number from 0 to 1 and stands in the schedule") {
  const ir::Schedule schedule = compiled("spectrain", 2, 4, 2, {{"gamma", "0.75"}});
  const std::vector<std::pair<std::string, std::string>> options = {{"gamma", "0.75"},
                                                                    {"variant", "1"}};
  CHECK(schedule.options == options);
  CHECK(schedule.micro_batches == 1);  // its unit is the whole mini-batch
  const scheduler::Policy policy = policies::spectrain();
  for (const char* wrong : {"1.5", "-0.1", "nan", "inf", "0.9x", "", "many"}) {
    const auto options_of = scheduler::resolve_options(policy, {{"gamma", wrong}});
    REQUIRE_FALSE(options_of.ok());
    CHECK(options_of.error().kind == ir::ErrorKind::Usage);
    CHECK(options_of.error().to_string().find("'gamma'") != std::string::npos);
    CHECK(options_of.error().to_string().find("from 0 to 1") != std::string::npos);
  }
}

}  // namespace
}  // namespace xpipe::tests
