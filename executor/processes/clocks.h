// One clock for all ranks' timelines. Each machine counts from a moment of its own, so every rank
// measures how far its clock is from rank 0's, and a merged timeline is corrected until it is in
// order.
//
//   rank 0   t0 --ping-->              t2     offset = t1 - (t0 + t2) / 2, off by at most half of
//   rank r          t1 --pong-->              t2 - t0; so the fastest of several rounds counts
//
// Source: Cristian, Probabilistic clock synchronization, 1989. What is left of the error is removed
// by the run itself: a message cannot be received before it was sent.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "executor/peers.h"
#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/timeline.h"

namespace xpipe::executor {

struct ClockOffset {
  ir::Nanos ahead = 0;       ///< how much this rank's clock shows more than rank 0's
  ir::Nanos round_trip = 0;  ///< of the round it was taken from

  bool operator==(const ClockOffset&) const = default;
};

/// From one round: `sent` and `back` on rank 0's clock, `there` on the other's.
[[nodiscard]] ClockOffset offset_of_round(ir::Nanos sent, ir::Nanos there, ir::Nanos back);

/// All ranks together, at a drained border: `rounds` pings of rank 0 to each other rank. Returns on
/// rank 0 the offset of every rank, 0 for its own; elsewhere nothing.
[[nodiscard]] ir::Result<std::vector<ClockOffset>> measure_clocks(Peers& peers,
                                                                  std::uint32_t rounds = 16);

/// The spans of one rank, on its own clock.
struct RankSpans {
  ir::Nanos origin = 0;  ///< what the rank's clock showed at the spans' 0
  std::vector<ir::Span> spans;
};

[[nodiscard]] std::string to_bytes(const RankSpans& spans);
/// Errors: Runtime "bad-frame".
[[nodiscard]] ir::Result<RankSpans> spans_from(const std::string& bytes);

/// One timeline of all ranks' spans on rank 0's clock, from the first start of all. Ranks are
/// shifted as a whole, as little as it takes for every edge between two of them to be in order.
/// `began`: what rank 0's clock showed at the timeline's 0.
struct MergedTimeline {
  ir::Timeline timeline;
  ir::Nanos began = 0;
};

/// Requires: the spans of all ranks together are all tasks. `offsets` by rank.
[[nodiscard]] MergedTimeline merge_timelines(const ir::Schedule& schedule,
                                             const std::vector<RankSpans>& by_rank,
                                             const std::vector<ClockOffset>& offsets);

}  // namespace xpipe::executor
