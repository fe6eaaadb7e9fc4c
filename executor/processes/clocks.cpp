#include "executor/processes/clocks.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

namespace xpipe::executor {

namespace {

using ir::index_of;
using ir::Nanos;

Nanos now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Parcel parcel_of_time(Nanos time) {
  std::string bytes(sizeof(time), '\0');
  std::memcpy(bytes.data(), &time, sizeof(time));
  return parcel_of(std::move(bytes));
}

ir::Error bad_frame(const char* what) {
  return ir::make_error(ir::ErrorKind::Runtime, "bad-frame", "", what);
}

ir::Result<Nanos> time_from(const ir::Result<Parcel>& parcel) {
  if (!parcel.ok()) {
    return parcel.error();
  }
  const std::string bytes = bytes_of(parcel.value());
  Nanos time = 0;
  if (bytes.size() != sizeof(time)) {
    return bad_frame("a clock's answer of another size");
  }
  std::memcpy(&time, bytes.data(), sizeof(time));
  return time;
}

/// A rank's clock must be put forward so that `to` starts when `from` has ended.
struct Constraint {
  std::size_t from = 0;  ///< ranks
  std::size_t to = 0;
  Nanos end = 0;  ///< of the task on `from`, the start of that on `to`; on rank 0's clock so far
  Nanos start = 0;
};

}  // namespace

ClockOffset offset_of_round(Nanos sent, Nanos there, Nanos back) {
  return {.ahead = there - (sent + (back - sent) / 2), .round_trip = back - sent};
}

ir::Result<std::vector<ClockOffset>> measure_clocks(Peers& peers, std::uint32_t rounds) {
  std::vector<ClockOffset> offsets;
  if (peers.rank() != 0) {
    for (std::uint32_t i = 0; i < rounds; ++i) {
      if (const auto ping = peers.receive(0); !ping.ok()) {
        return ping.error();
      }
      if (ir::Status sent = peers.send(0, parcel_of_time(now())); !sent.ok()) {
        return sent.error();
      }
    }
    return offsets;
  }
  offsets.resize(peers.ranks());
  for (std::uint32_t other = 1; other < peers.ranks(); ++other) {
    offsets[other].round_trip = std::numeric_limits<Nanos>::max();
    for (std::uint32_t i = 0; i < rounds; ++i) {
      const Nanos sent = now();
      if (ir::Status status = peers.send(other, parcel_of_time(sent)); !status.ok()) {
        return status.error();
      }
      const ir::Result<Nanos> there = time_from(peers.receive(other));
      if (!there.ok()) {
        return there.error();
      }
      const ClockOffset offset = offset_of_round(sent, there.value(), now());
      if (offset.round_trip < offsets[other].round_trip) {
        offsets[other] = offset;
      }
    }
  }
  return offsets;
}

std::string to_bytes(const RankSpans& spans) {
  std::string bytes(sizeof(Nanos) + spans.spans.size() * sizeof(ir::Span), '\0');
  std::memcpy(bytes.data(), &spans.origin, sizeof(Nanos));
  if (!spans.spans.empty()) {
    std::memcpy(bytes.data() + sizeof(Nanos), spans.spans.data(),
                spans.spans.size() * sizeof(ir::Span));
  }
  return bytes;
}

ir::Result<RankSpans> spans_from(const std::string& bytes) {
  static_assert(std::is_trivially_copyable_v<ir::Span>);
  if (bytes.size() < sizeof(Nanos) || (bytes.size() - sizeof(Nanos)) % sizeof(ir::Span) != 0) {
    return bad_frame("a timeline of an impossible size");
  }
  RankSpans spans;
  std::memcpy(&spans.origin, bytes.data(), sizeof(Nanos));
  spans.spans.resize((bytes.size() - sizeof(Nanos)) / sizeof(ir::Span));
  if (!spans.spans.empty()) {
    std::memcpy(spans.spans.data(), bytes.data() + sizeof(Nanos),
                spans.spans.size() * sizeof(ir::Span));
  }
  return spans;
}

MergedTimeline merge_timelines(const ir::Schedule& schedule,
                               const std::vector<RankSpans>& by_rank,
                               const std::vector<ClockOffset>& offsets) {
  std::vector<ir::Span> spans(schedule.tasks.size());
  std::vector<std::size_t> rank_of(schedule.tasks.size());
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const Nanos to_zero = by_rank[rank].origin - offsets[rank].ahead;
    for (const ir::Span& span : by_rank[rank].spans) {
      const std::uint32_t task = index_of(span.task);
      XPIPE_CHECK(task < spans.size()) << "a span of task " << task;
      spans[task] = {.task = span.task, .start = span.start + to_zero, .end = span.end + to_zero};
      rank_of[task] = rank;
    }
  }
  std::vector<Constraint> constraints;
  for (const ir::Edge& edge : schedule.edges) {
    const std::uint32_t from = index_of(edge.from);
    const std::uint32_t to = index_of(edge.to);
    if (rank_of[from] != rank_of[to]) {
      constraints.push_back({.from = rank_of[from],
                             .to = rank_of[to],
                             .end = spans[from].end,
                             .start = spans[to].start});
    }
  }
  // Each pass may push a rank forward, and so another one; without drift, ranks - 1 passes do.
  std::vector<Nanos> shift(by_rank.size(), 0);
  for (std::size_t pass = 0; pass < by_rank.size(); ++pass) {
    bool moved = false;
    for (const Constraint& constraint : constraints) {
      const Nanos late =
          constraint.end + shift[constraint.from] - constraint.start - shift[constraint.to];
      if (late > 0) {
        shift[constraint.to] += late;
        moved = true;
      }
    }
    if (!moved) {
      break;
    }
  }
  MergedTimeline merged;
  merged.timeline.measured = true;
  Nanos first = std::numeric_limits<Nanos>::max();
  for (std::size_t task = 0; task < spans.size(); ++task) {
    spans[task].start += shift[rank_of[task]];
    spans[task].end += shift[rank_of[task]];
    first = std::min(first, spans[task].start);
  }
  merged.began = spans.empty() ? 0 : first;
  for (ir::Span& span : spans) {
    span.start -= merged.began;
    span.end -= merged.began;
  }
  merged.timeline.spans = std::move(spans);
  return merged;
}

}  // namespace xpipe::executor
