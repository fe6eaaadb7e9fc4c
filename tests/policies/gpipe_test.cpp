// GPipe: its schedule drawn, its closed forms, and that it trains as sequential training does.
#include "policies/gpipe.h"

#include <doctest/doctest.h>

#include "tests/policies/replay.h"

namespace xpipe::tests {
namespace {

TEST_CASE("gpipe: the schedule of three stages and three micro-batches is the textbook's") {
  const ir::Schedule schedule = compiled("gpipe", 3, 3, 2);
  // F 0 1 2 then B 0 1 2, ascending; the next mini-batch enters when stage 0 has stepped
  CHECK(draw(schedule, 0) == "0 1 2 _ _ _ _ |0| |1| |2| 3 4 5 _ _ _ _ |3| |4| |5|");
  CHECK(draw(schedule, 1) == "0 1 2 _ _ |0| |1| |2| _ _ 3 4 5 _ _ |3| |4| |5|");
  CHECK(draw(schedule, 2) == "0 1 2 |0| |1| |2| _ _ _ _ 3 4 5 |3| |4| |5|");
}

TEST_CASE("gpipe: every pass of a mini-batch reads the master as the last step left it") {
  const ir::Schedule schedule = compiled("gpipe", 2, 2, 2);
  for (std::uint32_t k = 0; k < 2; ++k) {
    const std::string s = std::to_string(k);
    CHECK(lane_text(schedule, k) == s + "F0[s0:v0] " + s + "F1[s0:v0] " + s + "B0[s0:v0] " + s +
                                        "B1[s0:v0] " + s + "STEP0[v0] " + s + "F2[s0:v1] " + s +
                                        "F3[s0:v1] " + s + "B2[s0:v1] " + s + "B3[s0:v1] " + s +
                                        "STEP1[v1]");
  }
}

TEST_CASE("gpipe: a stage runs every forward of a mini-batch before its first backward") {
  const StageReplay stage = replay_stage(compiled("gpipe", 4, 4, 2), 1);
  const std::string order(stage.order.begin(), stage.order.end());
  CHECK(order == "FFFFBBBBSFFFFBBBBS");
  CHECK(stage.indices == std::vector<std::uint32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0,  //
                                                    4, 5, 6, 7, 4, 5, 6, 7, 1});
}

TEST_CASE("gpipe: makespan is N(T+D-1)(f+b), T micro-batches are in flight (P4)") {
  for (std::int64_t d = 1; d <= 8; ++d) {
    for (std::int64_t t = 1; t <= 8; ++t) {
      for (std::int64_t n : {1, 2, 5}) {
        CAPTURE(d);
        CAPTURE(t);
        CAPTURE(n);
        const ir::Schedule schedule =
            compiled("gpipe", static_cast<std::uint32_t>(d), static_cast<std::uint32_t>(t),
                     static_cast<std::uint32_t>(n));
        CHECK(makespan_in_slots(schedule, 1, 2) == n * (t + d - 1) * 3);
        CHECK(makespan_in_slots(schedule, 5, 3) == n * (t + d - 1) * 8);
        for (std::uint32_t k = 0; k < d; ++k) {
          const StageReplay stage = replay_stage(schedule, k);
          CHECK(stage.in_flight == t);
          CHECK(stage.versions_held == 1);
          CHECK(is_sequential(stage, schedule.micro_batches));
        }
      }
    }
  }
}

}  // namespace
}  // namespace xpipe::tests
