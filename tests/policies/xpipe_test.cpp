// XPipe: the paper's figure cell by cell, slots by the closed form (P1, P2, P5), staleness measured
// (P6), distances by the table (P7), storages and copies (P10).
#include "policies/xpipe.h"

#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "policies/version_difference.h"
#include "tests/policies/replay.h"

namespace xpipe::tests {
namespace {

using policies::Rounding;
using policies::VersionDifference;

constexpr std::uint32_t kMiniBatches[] = {1, 2, 3, 5, 8, 12};

std::string where(std::uint32_t d, std::uint32_t t, std::uint32_t n) {
  return "D=" + std::to_string(d) + " T=" + std::to_string(t) + " N=" + std::to_string(n);
}

/// Calls body(D, T, N) for the whole grid.
template <typename Body>
void for_grid(Body body) {
  for (std::uint32_t d = 1; d <= 8; ++d) {
    for (std::uint32_t t = 1; t <= 8; ++t) {
      for (std::uint32_t n : kMiniBatches) {
        body(d, t, n);
      }
    }
  }
}

TEST_CASE("xpipe: four stages, two micro-batches: the paper's figure cell by cell (P1)") {
  // The paper counts from 1, we from 0.
  const ir::Schedule schedule = compiled("xpipe", 4, 2, 8);
  const auto starts_with = [&](std::uint32_t stage, const std::string& cells) {
    CHECK(draw(schedule, stage).substr(0, cells.size()) == cells);
  };
  starts_with(0, "0 1 2 3 _ _ _ |0| 4 |1| 5 |2| 6 |3| 7 |4|");
  starts_with(1, "0 1 2 _ _ |0| 3 |1| 4 |2| 5");
  starts_with(2, "0 1 _ |0| 2 |1| 3 |2| 4");
  starts_with(3, "0 |0| 1 |1| 2 |2|");
}

TEST_CASE("xpipe: in the figure F(5) and B(5) predict on all stages, for mini-batch 3") {
  // From 0: F4 and B4, for mini-batch 2. Half-up is the rounding under which every stage has
  // something to predict in both passes. Stage k holds version 0, 1, 1, 2 at F4, 2 at B4.
  const ir::Schedule schedule = compiled("xpipe", 4, 2, 8, {{"rounding", "half-up"}});
  const ir::Version newest[] = {0, 1, 1, 2};
  const ir::Distance ahead[] = {2, 2, 2, 1};
  for (std::uint32_t k = 0; k < 4; ++k) {
    const StageReplay stage = replay_stage(schedule, k);
    const std::string lane = lane_text(schedule, k);
    CAPTURE(lane);
    CHECK(stage.forwards[4].version == newest[k]);
    CHECK(stage.forwards[4].distance == ahead[k]);
    CHECK(stage.backwards[4].version == 2);
    CHECK(stage.backwards[4].distance == 1);
    // each is predicted right before its first reader, and the second micro-batch reads it too
    const std::string s = std::to_string(k);
    CHECK(lane.find(stage.forwards[4].content + " " + s + "F4[") != std::string::npos);
    CHECK(lane.find(stage.backwards[4].content + " " + s + "B4[") != std::string::npos);
    CHECK(stage.forwards[4].content.find(s + "PREDICT_F2[") == 0);
    CHECK(stage.backwards[4].content.find(s + "PREDICT_B2[") == 0);
    CHECK(stage.forwards[5].content == stage.forwards[4].content);
    CHECK(stage.backwards[5].content == stage.backwards[4].content);
  }
}

TEST_CASE("xpipe: slots are those of the closed form (P1, P5)") {
  // methods.md 1.1, which counts from 1: F(j,k) starts at k + j - 1 in the warm-up (j <= D - k),
  // then at 2j + k - 2; B(j,k) at 2j + 2D - 3 - k; update i ends B(iT,k), slot 2iT + 2D - 2 - k.
  for_grid([](std::int64_t d, std::int64_t t, std::int64_t n) {
    const ir::Schedule schedule =
        compiled("xpipe", static_cast<std::uint32_t>(d), static_cast<std::uint32_t>(t),
                 static_cast<std::uint32_t>(n));
    const std::vector<std::int64_t> start = start_slots(schedule, 1, 1);
    REQUIRE(start.size() == schedule.tasks.size());
    bool same = true;
    for (std::size_t id = 0; id < schedule.tasks.size(); ++id) {
      const ir::Task& task = schedule.tasks[id];
      const std::int64_t k = ir::index_of(task.stage);
      if (const auto* forward = std::get_if<ir::Forward>(&task.payload)) {
        const std::int64_t j = ir::index_of(forward->micro_batch) + 1;
        same = same && start[id] == (j <= d - k ? k + j - 1 : 2 * j + k - 2);
      } else if (const auto* backward = std::get_if<ir::Backward>(&task.payload)) {
        const std::int64_t j = ir::index_of(backward->micro_batch) + 1;
        same = same && start[id] == 2 * j + 2 * d - 3 - k;
      } else if (const auto* step = std::get_if<ir::Step>(&task.payload)) {
        const std::int64_t i = ir::index_of(step->mini_batch) + 1;
        same = same && start[id] == 2 * i * t + 2 * d - 2 - k;
      }
    }
    CHECK_MESSAGE(same, "D=" << d << " T=" << t << " N=" << n);
  });
}

TEST_CASE("xpipe: D-k forwards, then a backward and a forward in turn, no flush (P2, P5)") {
  for_grid([](std::uint32_t d, std::uint32_t t, std::uint32_t n) {
    const ir::Schedule schedule = compiled("xpipe", d, t, n);
    for (std::uint32_t k = 0; k < d; ++k) {
      const std::uint32_t all = n * t;
      const std::uint32_t warm_up = std::min(d - k, all);
      std::string order(warm_up, 'F');
      for (std::uint32_t j = 0; j < all; ++j) {
        order += j % t == t - 1 ? "BS" : "B";
        order += j + warm_up < all ? "F" : "";
      }
      const StageReplay stage = replay_stage(schedule, k);
      CHECK_MESSAGE(std::string(stage.order.begin(), stage.order.end()) == order, where(d, t, n));
      CHECK(stage.in_flight == warm_up);
    }
  });
}

TEST_CASE("xpipe: without prediction a forward misses ceil((D-1-k-p)/T) updates (P6)") {
  for_grid([](std::uint32_t d, std::uint32_t t, std::uint32_t n) {
    const ir::Schedule schedule = compiled("xpipe", d, t, n, {{"predict", "none"}});
    bool as_derived = true;
    for (std::uint32_t k = 0; k < d; ++k) {
      const StageReplay stage = replay_stage(schedule, k);
      as_derived =
          as_derived && stage.faults.empty() && stage.predicts.empty() && stage.versions_held == 1;
      for (std::uint32_t j = 0; j < n * t; ++j) {
        const std::uint32_t i = j / t;
        const std::uint32_t p = j % t;
        const std::uint32_t missing = d - 1 - k > p ? (d - 1 - k - p + t - 1) / t : 0;
        as_derived = as_derived && i - stage.forwards[j].version == std::min(i, missing) &&
                     stage.backwards[j].version == i && stage.forwards[j].distance == 0;
      }
    }
    CHECK_MESSAGE(as_derived, where(d, t, n));
  });
}

TEST_CASE("xpipe: with copies all forwards of a mini-batch are as stale as its first (P6)") {
  for_grid([](std::uint32_t d, std::uint32_t t, std::uint32_t n) {
    const ir::Schedule schedule = compiled("xpipe", d, t, n);
    bool as_derived = true;
    for (std::uint32_t k = 0; k < d; ++k) {
      const StageReplay stage = replay_stage(schedule, k);
      for (std::uint32_t j = 0; j < n * t; ++j) {
        const std::uint32_t i = j / t;
        as_derived = as_derived &&
                     i - stage.forwards[j].version == std::min(i, (d - 1 - k + t - 1) / t) &&
                     stage.backwards[j].version == i;
      }
    }
    CHECK_MESSAGE(as_derived, where(d, t, n));
  });
}

TEST_CASE("xpipe: the horizon is what a slot simulation counts (P6)") {
  // Updates of stage k after the start of the bellwether's pass and before the mini-batch's last
  // micro-batch ends on stage 0, for a mini-batch in the middle of a long segment.
  constexpr std::uint32_t kLong = 30;
  constexpr std::uint32_t kMiddle = 12;
  for (std::uint32_t d = 1; d <= 8; ++d) {
    for (std::uint32_t t = 1; t <= 8; ++t) {
      const ir::Schedule schedule = compiled("xpipe", d, t, kLong);
      const std::vector<std::int64_t> start = start_slots(schedule, 1, 1);
      std::vector<std::vector<std::int64_t>> steps(d);
      std::vector<std::int64_t> forward(d);
      std::vector<std::int64_t> backward(d);
      std::int64_t through = 0;
      for (std::size_t id = 0; id < schedule.tasks.size(); ++id) {
        const ir::Task& task = schedule.tasks[id];
        const std::uint32_t k = ir::index_of(task.stage);
        if (const auto* f = std::get_if<ir::Forward>(&task.payload)) {
          if (ir::index_of(f->micro_batch) == kMiddle * t) {
            forward[k] = start[id];
          }
        } else if (const auto* b = std::get_if<ir::Backward>(&task.payload)) {
          if (ir::index_of(b->micro_batch) == kMiddle * t) {
            backward[k] = start[id];
          }
          if (k == 0 && ir::index_of(b->micro_batch) == kMiddle * t + t - 1) {
            through = start[id] + 1;
          }
        } else if (task.kind() == ir::TaskKind::Step) {
          steps[k].push_back(start[id]);
        }
      }
      for (std::uint32_t k = 0; k < d; ++k) {
        const auto between = [&](std::int64_t after) {
          return std::count_if(steps[k].begin(), steps[k].end(),
                               [&](std::int64_t step) { return step > after && step < through; });
        };
        const policies::Distances s =
            policies::version_difference(VersionDifference::Horizon, Rounding::Floor, d, t, k);
        CAPTURE(d);
        CAPTURE(t);
        CAPTURE(k);
        CHECK(between(forward[k]) == s.forward);
        CHECK(between(backward[k]) == s.backward);
      }
    }
  }
}

TEST_CASE("xpipe: distances are the table's, min(table, i + s_b) at the start (P7)") {
  const struct {
    scheduler::Options options;
    VersionDifference mode;
    Rounding rounding;
  } kChoices[] = {
      {{}, VersionDifference::Paper, Rounding::Floor},
      {{{"rounding", "half-even"}}, VersionDifference::Paper, Rounding::HalfEven},
      {{{"rounding", "half-up"}}, VersionDifference::Paper, Rounding::HalfUp},
      {{{"version-difference", "horizon"}}, VersionDifference::Horizon, Rounding::Floor},
      {{{"version-difference", "local"}}, VersionDifference::Local, Rounding::Floor},
  };

  for (const auto& choice : kChoices) {
    for (std::uint32_t d : {1U, 2U, 3U, 4U, 7U, 8U}) {
      for (std::uint32_t t : {1U, 2U, 3U, 4U, 8U}) {
        const ir::Schedule schedule = compiled("xpipe", d, t, 10, choice.options);
        for (std::uint32_t k = 0; k < d; ++k) {
          const policies::Distances table =
              policies::version_difference(choice.mode, choice.rounding, d, t, k);
          const StageReplay stage = replay_stage(schedule, k);
          bool as_table = true;
          for (std::uint32_t j = 0; j < 10 * t; ++j) {
            const std::uint32_t capped =
                std::min<std::uint32_t>(table.forward, j / t + table.backward);
            as_table = as_table && stage.forwards[j].distance == capped &&
                       stage.backwards[j].distance == table.backward;
          }
          CHECK_MESSAGE(as_table, where(d, t, 10) << " stage " << k);
        }
      }
    }
  }
}

TEST_CASE("xpipe: local aims exactly at the version that sequential training reads") {
  for_grid([](std::uint32_t d, std::uint32_t t, std::uint32_t n) {
    const ir::Schedule schedule = compiled("xpipe", d, t, n, {{"version-difference", "local"}});
    bool exact = true;
    for (std::uint32_t k = 0; k < d; ++k) {
      const StageReplay stage = replay_stage(schedule, k);
      for (std::uint32_t j = 0; j < n * t; ++j) {
        exact = exact && stage.forwards[j].version + stage.forwards[j].distance == j / t &&
                stage.backwards[j].distance == 0;
      }
    }
    CHECK_MESSAGE(exact, where(d, t, n));
  });
}

TEST_CASE("xpipe: at most 3 storages, one copy a mini-batch and pass, 2 predictions (P10)") {
  for (const scheduler::Options& options :
       {scheduler::Options{}, scheduler::Options{{"rounding", "half-up"}},
        scheduler::Options{{"version-difference", "horizon"}},
        scheduler::Options{{"predict", "forward"}}}) {
    const bool both = options.count("predict") == 0;
    for_grid([&](std::uint32_t d, std::uint32_t t, std::uint32_t n) {
      const ir::Schedule schedule = compiled("xpipe", d, t, n, options);
      bool as_promised = true;
      for (std::uint32_t k = 0; k < d; ++k) {
        const StageReplay stage = replay_stage(schedule, k);
        as_promised = as_promised && stage.faults.empty() &&
                      stage.versions_held <= (both && t > 1 ? 3 : 2) &&
                      schedule.stages[k].slots == stage.versions_held;
        std::uint32_t forward_predicts = 0;
        std::uint32_t backward_predicts = 0;
        for (std::uint32_t j = 0; j < n * t; ++j) {
          const std::uint32_t bellwether = j - j % t;
          as_promised = as_promised &&
                        stage.forwards[j].content == stage.forwards[bellwether].content &&
                        stage.backwards[j].content == stage.backwards[bellwether].content;
          if (j == bellwether) {
            forward_predicts += stage.forwards[j].distance > 0 ? 1 : 0;
            backward_predicts += stage.backwards[j].distance > 0 ? 1 : 0;
          }
        }
        // exactly the bellwether's, none where the distance is 0
        as_promised = as_promised && stage.forward_predicts == forward_predicts &&
                      stage.backward_predicts == backward_predicts &&
                      (both || backward_predicts == 0);
        for (const auto& [mini_batch, predicts] : stage.predicts) {
          as_promised = as_promised && predicts <= 2 && mini_batch < n;
        }
      }
      CHECK_MESSAGE(as_promised, where(d, t, n));
    });
  }
}

TEST_CASE("xpipe: one stage reads what sequential training reads (P11)") {
  for (std::uint32_t t : {1U, 2U, 3U, 8U}) {
    for (const char* mode : {"paper", "horizon", "local"}) {
      const ir::Schedule schedule = compiled("xpipe", 1, t, 4, {{"version-difference", mode}});
      CHECK(is_sequential(replay_stage(schedule, 0), t));
      CHECK(schedule.stages[0].slots == 1);
    }
  }
}

}  // namespace
}  // namespace xpipe::tests
