// Offsets from pings, and one timeline in order from clocks that differ.
#include "executor/processes/clocks.h"

#include <cstdlib>

#include <doctest/doctest.h>

#include "executor/engine.h"
#include "executor/virtual_backend.h"
#include "tests/executor/schedules.h"
#include "tests/processes/socket_links.h"

namespace xpipe::tests {

namespace {

using executor::ClockOffset;
using executor::RankSpans;
using ir::index_of;

/// Device d is rank d's; its clock shows `skew[d]` more and its run began at `origin[d]` of it.
std::vector<RankSpans> dealt_out(const ir::Schedule& schedule,
                                 const ir::Timeline& timeline,
                                 const std::vector<ir::Nanos>& skew) {
  std::vector<RankSpans> by_rank(schedule.devices);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    by_rank[rank].origin = 1000 + skew[rank];
  }
  for (const ir::Span& span : timeline.spans) {
    by_rank[index_of(schedule.lane(schedule.task(span.task).lane).device)].spans.push_back(span);
  }
  return by_rank;
}

ir::Timeline simulated(const ir::Schedule& schedule) {
  const auto stages = static_cast<std::uint32_t>(schedule.stages.size());
  ir::LinkSpec link;
  link.latency = 100;
  executor::VirtualBackend backend(
      scheduler::uniform_costs(stages, schedule.devices, 1000, 2000, link));
  auto timeline = executor::run(schedule, executor::no_op_handlers(), backend);
  REQUIRE(timeline.ok());
  return std::move(timeline).value();
}

}  // namespace

TEST_CASE("clocks: a symmetric round gives the offset, an unsymmetric one is off by half of it") {
  CHECK(executor::offset_of_round(100, 5150, 200) == ClockOffset{.ahead = 5000, .round_trip = 100});
  CHECK(executor::offset_of_round(100, 5190, 200).ahead == 5040);
  CHECK(executor::offset_of_round(1000, 10, 1020) == ClockOffset{.ahead = -1000, .round_trip = 20});
}

TEST_CASE("clocks: threads of one machine find that they share a clock, up to the round trip") {
  run_ranks(3, [](executor::Processes& peers) {
    const auto offsets = executor::measure_clocks(peers, 8);
    REQUIRE(offsets.ok());
    REQUIRE(offsets.value().size() == (peers.rank() == 0 ? 3 : 0));
    for (const ClockOffset& offset : offsets.value()) {
      CHECK(std::abs(offset.ahead) <= offset.round_trip / 2 + 1);
    }
    CHECK(peers.finish().ok());
  });
}

TEST_CASE("clocks: with exact offsets the merged timeline is the one that was dealt out") {
  const ir::Schedule schedule = compiled("xpipe", 4, 2, 3);
  const ir::Timeline timeline = simulated(schedule);
  const std::vector<ir::Nanos> skew = {0, 123456789, -777, 1'000'000'000'000};
  std::vector<ClockOffset> offsets;
  for (const ir::Nanos ahead : skew) {
    offsets.push_back({.ahead = ahead, .round_trip = 10});
  }
  const auto merged =
      executor::merge_timelines(schedule, dealt_out(schedule, timeline, skew), offsets);
  CHECK(merged.timeline.spans == timeline.spans);
  CHECK(merged.timeline.measured);
  CHECK(merged.began == 1000);
}

TEST_CASE("clocks: wrong offsets are put right as far as the messages show that they are wrong") {
  const ir::Schedule schedule = compiled("gpipe", 4, 4, 2);
  const ir::Timeline timeline = simulated(schedule);
  const std::vector<ir::Nanos> skew = {0, 5000, -5000, 900};
  const std::vector<ClockOffset> wrong(4);  // as if all clocks were one
  const auto merged =
      executor::merge_timelines(schedule, dealt_out(schedule, timeline, skew), wrong);
  for (const ir::Edge& edge : schedule.edges) {
    CHECK(merged.timeline.spans[index_of(edge.from)].end <=
          merged.timeline.spans[index_of(edge.to)].start);
  }
  for (const ir::Lane& lane : schedule.lanes) {  // ranks move as a whole
    for (std::size_t i = 1; i < lane.order.size(); ++i) {
      CHECK(merged.timeline.spans[index_of(lane.order[i])].start -
                merged.timeline.spans[index_of(lane.order[0])].start ==
            timeline.spans[index_of(lane.order[i])].start -
                timeline.spans[index_of(lane.order[0])].start);
    }
  }
}

TEST_CASE("clocks: spans travel as bytes, and bytes of another size are refused") {
  RankSpans spans{.origin = -5, .spans = {{ir::TaskId{3}, 10, 20}, {ir::TaskId{9}, 20, 21}}};
  const auto back = executor::spans_from(executor::to_bytes(spans));
  REQUIRE(back.ok());
  CHECK(back.value().origin == -5);
  CHECK(back.value().spans == spans.spans);
  CHECK(!executor::spans_from("abc").ok());
  CHECK(!executor::spans_from(executor::to_bytes(spans) + "x").ok());
}

}  // namespace xpipe::tests
