#include "simulator/border_state.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <variant>

#include "ir/task.h"
#include "scheduler/link_model.h"
#include "scheduler/ready_tracker.h"

namespace xpipe::simulator {

namespace {

using ir::index_of;
using ir::Nanos;
using ir::TaskId;
using std::int64_t;
using std::size_t;
using std::uint32_t;

constexpr Nanos kNever = std::numeric_limits<Nanos>::max();
/// Between the entries of one lane and those of the next; no entry has this value.
constexpr int64_t kEndOfLane = std::numeric_limits<int64_t>::min();

/// Mixes 64 bits (SplitMix64's finalizer, Steele et al. 2014).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

std::uint64_t hash_of(const std::vector<int64_t>& state) {
  std::uint64_t hash = state.size();
  for (const int64_t word : state) {
    hash = mixed(hash + 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(word));
  }
  return hash;
}

class BorderReader {
 public:
  BorderReader(const ReplayedSegment& segment, const scheduler::CostModel& costs)
      : segment_(segment),
        schedule_(segment.schedule),
        costs_(costs),
        channels_(costs, segment.schedule),
        latency_(schedule_.lanes.size(), 0),
        border_time_(schedule_.mini_batches, kNever) {
    bool contends = false;
    for (size_t l = 0; l < schedule_.lanes.size(); ++l) {
      const ir::Lane& lane = schedule_.lanes[l];
      if (lane.kind == ir::LaneKind::Send) {
        latency_[l] = scheduler::find_link(costs, lane.device, lane.peer)->latency;
        contends |= !channels_.channels_of(lane_id(l)).empty();
      }
    }
    if (contends) {
      graph_.emplace(schedule_);
    }
    for (const WorkLeft& work : segment.work_left) {
      work_left_.emplace(work.mini_batch, &work);
    }
    for (size_t i = 0; i < schedule_.tasks.size(); ++i) {
      const auto batch = index_of(ir::mini_batch_of(schedule_.tasks[i], schedule_.micro_batches));
      border_time_[batch] = std::min(border_time_[batch], segment.timeline.spans[i].start);
    }
  }

  /// `near`: cursors of another border, to start from.
  [[nodiscard]] Border border(uint32_t mini_batch, const std::vector<uint32_t>* near) const {
    Border border{.mini_batch = mini_batch, .time = border_time_[mini_batch]};
    border.cursors.resize(schedule_.lanes.size());
    for (size_t l = 0; l < schedule_.lanes.size(); ++l) {
      border.cursors[l] = cursor(l, border.time, near == nullptr ? 0 : (*near)[l]);
    }
    for (size_t l = 0; l < schedule_.lanes.size(); ++l) {
      add_lane(l, border);
    }
    add_work_left(border);
    return border;
  }

 private:
  static ir::LaneId lane_id(size_t l) { return ir::LaneId(static_cast<uint32_t>(l)); }

  [[nodiscard]] const ir::Span& span(TaskId id) const {
    return segment_.timeline.spans[index_of(id)];
  }

  /// How many tasks of the lane start before `time`.
  [[nodiscard]] uint32_t cursor(size_t l, Nanos time, uint32_t from) const {
    const std::vector<TaskId>& order = schedule_.lanes[l].order;
    while (from > 0 && span(order[from - 1]).start >= time) {
      --from;
    }
    while (from < order.size() && span(order[from]).start < time) {
      ++from;
    }
    return from;
  }

  void add_lane(size_t l, Border& border) const {
    const std::vector<TaskId>& order = schedule_.lanes[l].order;
    const uint32_t cursor = border.cursors[l];
    for (uint32_t i = cursor; i > 0; --i) {  // ends ascend
      const Nanos left = span(order[i - 1]).end - border.time;
      if (left + latency_[l] <= 0) {
        break;
      }
      border.state.push_back(left);
    }
    border.state.push_back(kEndOfLane);
    if (cursor == order.size()) {
      return;
    }
    const ir::Task& next = schedule_.task(order[cursor]);
    border.state.push_back(static_cast<int64_t>(next.kind()));
    border.state.push_back(index_of(next.stage));
    border.state.push_back(place_in(next, border.mini_batch));
    if (!channels_.channels_of(lane_id(l)).empty()) {
      border.state.push_back(waits_since(l, border));
    }
  }

  /// The micro-batch, or mini-batch, counted from the border's.
  [[nodiscard]] int64_t place_in(const ir::Task& task, uint32_t mini_batch) const {
    if (const ir::MicroBatch* micro_batch = ir::micro_batch_of(task)) {
      return int64_t{index_of(*micro_batch)} - int64_t{schedule_.micro_batches} * mini_batch;
    }
    return int64_t{index_of(ir::mini_batch_of(task, schedule_.micro_batches))} - mini_batch;
  }

  /// When the lane's next transfer became ready, before the border and relative to it; 1: not yet.
  [[nodiscard]] int64_t waits_since(size_t l, const Border& border) const {
    const TaskId next = schedule_.lanes[l].order[border.cursors[l]];
    Nanos ready = 0;
    for (const TaskId before : graph_->predecessors(next)) {
      if (span(before).start >= border.time) {
        return 1;
      }
      const Nanos delay = scheduler::edge_delay(costs_, schedule_, {.from = before, .to = next});
      ready = std::max(ready, span(before).end + delay);
    }
    return ready < border.time ? ready - border.time : 1;
  }

  void add_work_left(Border& border) const {
    const auto [begin, end] = work_left_.equal_range(border.mini_batch);
    for (auto entry = begin; entry != end; ++entry) {
      const WorkLeft& work = *entry->second;
      if (span(work.task).start < border.time && span(work.task).end > border.time) {
        border.state.push_back(index_of(schedule_.task(work.task).lane));
        border.state.push_back(work.left.whole);
        border.state.push_back(work.left.fraction);
      }
    }
  }

  const ReplayedSegment& segment_;
  const ir::Schedule& schedule_;
  const scheduler::CostModel& costs_;
  scheduler::LinkChannels channels_;
  std::vector<Nanos> latency_;      ///< by LaneId: of what it sends
  std::vector<Nanos> border_time_;  ///< by mini-batch
  std::optional<scheduler::TaskGraph> graph_;
  std::multimap<uint32_t, const WorkLeft*> work_left_;  ///< by mini-batch, then in its order
};

}  // namespace

std::vector<Repeat> find_repeats(const ReplayedSegment& segment,
                                 const scheduler::CostModel& costs,
                                 size_t most) {
  const BorderReader reader(segment, costs);
  const uint32_t borders = segment.schedule.mini_batches;
  std::vector<std::uint64_t> hashes(borders);
  std::unordered_map<std::uint64_t, uint32_t> latest;  // the last border with a state's hash
  std::set<uint32_t> periods;                          // between neighbours of one state
  std::vector<uint32_t> cursors(segment.schedule.lanes.size(), 0);
  for (uint32_t m = 0; m < borders; ++m) {
    Border border = reader.border(m, &cursors);
    hashes[m] = hash_of(border.state);
    cursors = std::move(border.cursors);
    const auto [entry, is_new] = latest.try_emplace(hashes[m], m);
    if (!is_new) {
      periods.insert(m - std::exchange(entry->second, m));
    }
  }
  // What is left to run may repeat with a multiple only (replicas in turn).
  for (uint32_t times = 2, period = periods.empty() ? 0 : *periods.begin();
       !periods.empty() && periods.size() < most && times * period < borders; ++times) {
    periods.insert(times * period);
  }
  std::vector<Repeat> repeats;
  for (const uint32_t period : periods) {
    std::vector<uint32_t> firsts;
    for (uint32_t m = 0; m + period < borders; ++m) {
      if (hashes[m] == hashes[m + period]) {
        firsts.push_back(m);
      }
    }
    if (firsts.empty() || repeats.size() == most) {
      continue;
    }
    const uint32_t middle = firsts[firsts.size() / 2];
    Repeat repeat{reader.border(middle, &cursors), reader.border(middle + period, &cursors),
                  firsts.front()};
    if (repeat.first.state == repeat.second.state) {
      repeats.push_back(std::move(repeat));
    }
  }
  return repeats;
}

std::optional<Repeat> repeat_at(const ReplayedSegment& segment,
                                const scheduler::CostModel& costs,
                                uint32_t first,
                                uint32_t second) {
  const BorderReader reader(segment, costs);
  Repeat repeat{reader.border(first, nullptr), reader.border(second, nullptr), first};
  return repeat.first.state == repeat.second.state ? std::optional(std::move(repeat))
                                                   : std::nullopt;
}

}  // namespace xpipe::simulator
