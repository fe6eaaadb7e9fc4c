// 1F1B without a flush, drawn.
#include "scheduler/orders.h"

#include <string>

#include <doctest/doctest.h>

namespace xpipe::scheduler {
namespace {

std::string drawn(std::uint32_t stages, std::uint32_t stage, std::uint32_t micro_batches) {
  std::string text;
  for (const PassOf& at : one_f_one_b(stages, stage, micro_batches)) {
    text += (text.empty() ? "" : " ") + std::string(at.pass == ir::Pass::Forward ? "F" : "B") +
            std::to_string(at.micro_batch);
  }
  return text;
}

TEST_CASE("1F1B: D-k forwards, then a backward and a forward in turn, then backwards") {
  CHECK(drawn(3, 0, 5) == "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  CHECK(drawn(3, 1, 5) == "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
  CHECK(drawn(3, 2, 5) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
}

TEST_CASE("1F1B: a stream shorter than the warm-up caps it") {
  CHECK(drawn(4, 0, 2) == "F0 F1 B0 B1");
  CHECK(drawn(4, 1, 3) == "F0 F1 F2 B0 B1 B2");
  CHECK(drawn(4, 3, 2) == "F0 B0 F1 B1");
  CHECK(drawn(1, 0, 1) == "F0 B0");
}

TEST_CASE("1F1B: staleness is ceil((D-1-k)/T), never more than there are earlier mini-batches") {
  CHECK(one_f_one_b_staleness({4, 1, 9, {}}, 0) == 3);
  CHECK(one_f_one_b_staleness({4, 2, 9, {}}, 0) == 2);
  CHECK(one_f_one_b_staleness({4, 4, 9, {}}, 0) == 1);
  CHECK(one_f_one_b_staleness({4, 2, 9, {}}, 3) == 0);
  CHECK(one_f_one_b_staleness({4, 1, 2, {}}, 0) == 1);
  CHECK(one_f_one_b_staleness({4, 1, 1, {}}, 0) == 0);
}

TEST_CASE("segments: at the start a prediction aims less far") {
  CHECK(distance_from_start(3, 0, 0) == 0);
  CHECK(distance_from_start(3, 1, 0) == 1);
  CHECK(distance_from_start(3, 1, 1) == 2);
  CHECK(distance_from_start(3, 1, 2) == 3);
  CHECK(distance_from_start(3, 1, 4294967295U) == 3);
}

}  // namespace
}  // namespace xpipe::scheduler
