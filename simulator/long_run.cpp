#include "simulator/long_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "simulator/simulate.h"

namespace xpipe::simulator {

namespace {

using ir::Nanos;
using std::size_t;
using std::uint32_t;
using std::uint64_t;

constexpr uint32_t kFirstLength = 16;
/// Periods of the state that are tried before a longer segment is.
constexpr size_t kCandidates = 8;

/// A repeat that holds: `longer` is `base` with the period once more.
struct Proof {
  ReplayedSegment base;
  ReplayedSegment longer;
  Repeat repeat;
};

class Search {
 public:
  Search(const LongRunRequest& request,
         const scheduler::CostModel& costs,
         const CompileSegment& compile)
      : request_(request), costs_(costs), compile_(compile) {}

  ir::Result<LongRun> run() {
    const uint32_t n = request_.mini_batches;
    ir::Result<ReplayedSegment> first = replayed(std::min(n, kFirstLength));
    if (!first.ok()) {
      return first.error();
    }
    const uint32_t first_length = first.value().schedule.mini_batches;
    tasks_per_mini_batch_ = first.value().schedule.tasks.size() / first_length + 1;
    LongRun result;
    std::optional<Proof> proof;
    if (request_.extrapolate || request_.find_steady_state) {
      if (ir::Status searched = search(first.value(), proof); !searched.ok()) {
        return searched.error();
      }
      if (ir::Status found = find_steady(proof, result.steady); !found.ok()) {
        return found.error();
      }
    }
    if (proof && request_.extrapolate && take(std::move(*proof), result)) {
      return result;
    }
    if (n == first_length) {
      const bool is_in_proof = proof && proof->base.schedule.mini_batches == first_length;
      result.base = is_in_proof ? std::move(proof->base) : std::move(first).value();
      return result;
    }
    if (request_.extrapolate && !proof) {
      result.note = "no state of the replay repeats within " + std::to_string(longest_tried_) +
                    " mini-batches: all " + std::to_string(n) + " are replayed";
    }
    if (ir::Status possible = check_full_size(); !possible.ok()) {
      return possible.error();
    }
    ir::Result<ReplayedSegment> full = replayed(n);
    if (!full.ok()) {
      return full.error();
    }
    result.base = std::move(full).value();
    return result;
  }

 private:
  ir::Result<ReplayedSegment> replayed(uint32_t mini_batches) {
    ir::Result<ir::Schedule> schedule = compile_(mini_batches);
    if (!schedule.ok()) {
      return schedule.error();
    }
    spent_ += schedule.value().tasks.size();
    return replay_segment(std::move(schedule).value(), costs_);
  }

  /// Whether a segment of this length may be tried: it fits into what the search may take, or costs
  /// less than to replay all.
  [[nodiscard]] bool may_try(uint64_t mini_batches) const {
    const uint64_t tasks = mini_batches * tasks_per_mini_batch_;
    return spent_ + tasks <= request_.most_tasks ||
           (request_.extrapolate && 2 * mini_batches <= request_.mini_batches &&
            tasks <= kMostTasksInFull / 4);
  }

  /// In `first`, then in longer and longer segments, until a repeat holds. `first` is taken where
  /// it holds in it.
  ir::Status search(ReplayedSegment& first, std::optional<Proof>& proof) {
    const auto stages = static_cast<uint32_t>(first.schedule.stages.size());
    const uint32_t filling =
        (stages + first.schedule.micro_batches - 1) / first.schedule.micro_batches;
    longest_tried_ = first.schedule.mini_batches;
    uint64_t length = std::max(kFirstLength, 2 * filling + 8);
    length = length > longest_tried_ ? length : 2 * longest_tried_;
    if (ir::Status tried = search_in(first, proof); !tried.ok() || proof) {
      return tried;
    }
    for (bool must = true; must || may_try(length); length *= 2, must = false) {
      ir::Result<ReplayedSegment> segment = replayed(static_cast<uint32_t>(length));
      if (!segment.ok()) {
        return segment.error();
      }
      longest_tried_ = length;
      if (ir::Status tried = search_in(segment.value(), proof); !tried.ok() || proof) {
        return tried;
      }
    }
    return {};
  }

  ir::Status search_in(ReplayedSegment& segment, std::optional<Proof>& proof) {
    for (Repeat& repeat : find_repeats(segment, costs_, kCandidates)) {
      if (ir::Status tried = prove(segment, std::move(repeat), proof); !tried.ok() || proof) {
        return tried;
      }
    }
    return {};
  }

  /// `segment` is taken where the repeat holds.
  ir::Status prove(ReplayedSegment& segment, Repeat repeat, std::optional<Proof>& proof) {
    const uint32_t length = segment.schedule.mini_batches;
    const uint32_t period = repeat.period();
    const uint32_t n = request_.mini_batches;
    const uint32_t more = n > length ? (n - length) % period : 0;
    std::optional<ReplayedSegment> other;
    if (more > 0) {
      ir::Result<ReplayedSegment> longer = replayed(length + more);
      if (!longer.ok()) {
        return longer.error();
      }
      other = std::move(longer).value();
      std::optional<Repeat> again =
          repeat_at(*other, costs_, repeat.first.mini_batch, repeat.second.mini_batch);
      if (!again) {
        return {};
      }
      again->earliest = repeat.earliest;
      repeat = std::move(*again);
    }
    ReplayedSegment& base = other ? *other : segment;
    ir::Result<ReplayedSegment> longer = replayed(length + more + period);
    if (!longer.ok()) {
      return longer.error();
    }
    if (is_one_period_longer(base.schedule, longer.value().schedule, repeat, costs_) &&
        ir::makespan(longer.value().timeline) == ir::makespan(base.timeline) + repeat.period_ns()) {
      proof = {std::move(base), std::move(longer).value(), std::move(repeat)};
    }
    return {};
  }

  ir::Status find_steady(const std::optional<Proof>& proof, SteadyState& steady) {
    if (!request_.find_steady_state) {
      return {};
    }
    if (!proof) {
      steady.note = "no steady state: no state of the replay repeats within " +
                    std::to_string(longest_tried_) + " mini-batches";
      return {};
    }
    const uint32_t period = proof->repeat.period();
    const uint32_t from = proof->base.schedule.mini_batches;
    std::vector<Nanos> makespans = {ir::makespan(proof->base.timeline)};
    const uint64_t tasks = uint64_t{from + period} * tasks_per_mini_batch_;
    if (spent_ + (period - 1) * tasks <= request_.most_tasks) {
      for (uint32_t r = 1; r < period; ++r) {
        const ir::Result<ReplayedSegment> between = replayed(from + r);
        if (!between.ok()) {
          return between.error();
        }
        makespans.push_back(ir::makespan(between.value().timeline));
      }
    }
    makespans.push_back(ir::makespan(proof->longer.timeline));
    const bool all_known = makespans.size() == period + size_t{1};
    steady.period = all_known ? smallest_period(makespans) : period;
    steady.period_ns =
        all_known ? makespans[steady.period] - makespans[0] : makespans.back() - makespans.front();
    steady.from = from;
    if (proof->repeat.earliest > request_.mini_batches) {
      steady.note = "the pipeline settles only after " + std::to_string(proof->repeat.earliest) +
                    " mini-batches; the steady state is that of longer runs";
    }
    return {};
  }

  /// Of the differences between neighbours, which repeat with the number of them.
  static uint32_t smallest_period(const std::vector<Nanos>& makespans) {
    const size_t all = makespans.size() - 1;
    const auto difference = [&](size_t i) { return makespans[i % all + 1] - makespans[i % all]; };
    for (size_t p = 1; p < all; ++p) {
      bool repeats = all % p == 0;
      for (size_t i = 0; repeats && i < all; ++i) {
        repeats = difference(i) == difference(i + p);
      }
      if (repeats) {
        return static_cast<uint32_t>(p);
      }
    }
    return static_cast<uint32_t>(all);
  }

  /// False when N is not base plus a number of periods.
  bool take(Proof proof, LongRun& result) const {
    const uint32_t n = request_.mini_batches;
    const uint32_t base = proof.base.schedule.mini_batches;
    if (n < base) {
      return false;
    }
    result.repeats = (n - base) / proof.repeat.period();
    if (result.repeats == 1) {
      result.base = std::move(proof.longer);
      result.repeats = 0;
      return true;
    }
    result.base = std::move(proof.base);
    if (result.repeats > 0) {
      result.longer = std::move(proof.longer);
    }
    return true;
  }

  [[nodiscard]] ir::Status check_full_size() const {
    if (tasks_per_mini_batch_ * request_.mini_batches <= kMostTasksInFull) {
      return {};
    }
    return ir::make_error(
        ir::ErrorKind::Usage, "size", "--mini-batches",
        std::to_string(request_.mini_batches) + " mini-batches of " +
            std::to_string(tasks_per_mini_batch_) + " tasks each are too many to replay in full (" +
            std::to_string(kMostTasksInFull) + " tasks at most)" +
            (request_.extrapolate ? ", and no state of the replay repeats within " +
                                        std::to_string(longest_tried_) + " of them"
                                  : "") +
            "; simulate fewer mini-batches" +
            (request_.extrapolate ? "" : ", or let the run be extrapolated"));
  }

  const LongRunRequest& request_;
  const scheduler::CostModel& costs_;
  const CompileSegment& compile_;
  uint64_t tasks_per_mini_batch_ = 0;
  uint64_t spent_ = 0;  ///< tasks compiled and replayed
  uint64_t longest_tried_ = 0;
};

}  // namespace

ir::Result<LongRun> replay_long_run(const LongRunRequest& request,
                                    const scheduler::CostModel& costs,
                                    const CompileSegment& compile) {
  XPIPE_CHECK(request.mini_batches > 0) << "a run of no mini-batches";
  return Search(request, costs, compile).run();
}

}  // namespace xpipe::simulator
