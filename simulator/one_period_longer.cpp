#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "ir/task.h"
#include "scheduler/link_model.h"
#include "simulator/border_state.h"

namespace xpipe::simulator {

namespace {

using ir::index_of;
using ir::TaskId;
using std::size_t;
using std::uint32_t;

/// How far the tasks behind the border are counted on.
struct Shift {
  uint32_t mini_batches = 0;
  uint32_t micro_batches = 0;
  uint32_t versions = 0;  ///< steps of the task's stage on its lane within the period
};

/// `task` as it would be called later.
ir::Task shifted(ir::Task task, const Shift& by) {
  const auto count_on = [&by](auto& payload) {
    if constexpr (requires { payload.micro_batch; }) {
      payload.micro_batch = ir::MicroBatch{index_of(payload.micro_batch) + by.micro_batches};
    }
    if constexpr (requires { payload.mini_batch; }) {
      payload.mini_batch = ir::MiniBatch{index_of(payload.mini_batch) + by.mini_batches};
    }
    if constexpr (requires { payload.weights; }) {
      payload.weights.version += by.versions;
    }
    if constexpr (requires { payload.version; }) {
      payload.version += by.versions;
    }
  };
  std::visit(count_on, task.payload);
  return task;
}

/// A task without the numbers of its slots, but with whose weights it finds in them.
struct Meaning {
  ir::Task task;
  /// How many tasks before it in its lane the slots that it reads or frees were written; 0: the
  /// master, or nobody wrote it.
  uint32_t written_before = 0;

  bool operator==(const Meaning&) const = default;
};

/// The tasks of one lane. Which slot of several free ones a copy is put into does not matter, and
/// may change in turn with a period of its own.
std::vector<Meaning> meanings_of(const ir::Schedule& schedule, const std::vector<TaskId>& order) {
  std::map<std::pair<ir::StageId, ir::SlotId>, uint32_t> written;
  std::vector<Meaning> meanings;
  meanings.reserve(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    Meaning meaning{schedule.task(order[i])};
    const ir::StageId stage = meaning.task.stage;
    const auto read = [&](ir::SlotId& slot) {
      const auto found = written.find({stage, slot});
      meaning.written_before = found == written.end() ? 0 : i - found->second;
      slot = ir::kMasterSlot;
    };
    const auto write = [&](ir::SlotId& slot) {
      written[{stage, slot}] = i;
      slot = ir::kMasterSlot;
    };
    std::visit(
        [&](auto& payload) {
          if constexpr (requires { payload.weights; }) {
            read(payload.weights.slot);
          }
          if constexpr (requires { payload.from; }) {
            read(payload.from);
          }
          if constexpr (requires { payload.into; }) {
            write(payload.into);
          }
          if constexpr (requires { payload.slot; }) {
            read(payload.slot);
          }
        },
        meaning.task.payload);
    meanings.push_back(meaning);
  }
  return meanings;
}

/// Where a task stands: (lane, index in it).
using Place = std::pair<uint32_t, uint32_t>;

std::vector<Place> places_of(const ir::Schedule& schedule) {
  std::vector<Place> places(schedule.tasks.size());
  for (uint32_t l = 0; l < schedule.lanes.size(); ++l) {
    const std::vector<TaskId>& order = schedule.lanes[l].order;
    for (uint32_t i = 0; i < order.size(); ++i) {
      places[index_of(order[i])] = {l, i};
    }
  }
  return places;
}

/// What each task waits for by edges, in compressed rows.
class Sources {
 public:
  explicit Sources(const ir::Schedule& schedule)
      : begin_(schedule.tasks.size() + 1, 0), from_(schedule.edges.size()) {
    const std::vector<Place> places = places_of(schedule);
    for (const ir::Edge& edge : schedule.edges) {
      ++begin_[index_of(edge.to) + size_t{1}];
    }
    for (size_t i = 1; i < begin_.size(); ++i) {
      begin_[i] += begin_[i - 1];
    }
    std::vector<uint32_t> next(begin_.begin(), begin_.end() - 1);
    for (const ir::Edge& edge : schedule.edges) {
      from_[next[index_of(edge.to)]++] = places[index_of(edge.from)];
    }
  }

  /// Replaces what `sources` holds.
  void list(TaskId task, std::vector<Place>& sources) const {
    sources.assign(from_.begin() + begin_[index_of(task)],
                   from_.begin() + begin_[index_of(task) + size_t{1}]);
  }

 private:
  std::vector<uint32_t> begin_;
  std::vector<Place> from_;
};

class Comparison {
 public:
  Comparison(const ir::Schedule& shorter, const ir::Schedule& longer, const Repeat& repeat)
      : shorter_(shorter), longer_(longer), repeat_(repeat) {}

  [[nodiscard]] bool holds() const {
    bool same = shorter_.stages == longer_.stages && shorter_.devices == longer_.devices &&
                shorter_.micro_batches == longer_.micro_batches &&
                shorter_.lanes.size() == longer_.lanes.size() &&
                shorter_.mini_batches + repeat_.period() == longer_.mini_batches;
    for (size_t l = 0; same && l < shorter_.lanes.size(); ++l) {
      same = has_same_lane(l);
    }
    return same && has_same_edges();
  }

 private:
  [[nodiscard]] uint32_t first_cut(size_t l) const { return repeat_.first.cursors[l]; }

  [[nodiscard]] uint32_t second_cut(size_t l) const { return repeat_.second.cursors[l]; }

  [[nodiscard]] uint32_t inserted(size_t l) const { return second_cut(l) - first_cut(l); }

  /// Before the second border the tasks are the same, behind the first they are counted on.
  [[nodiscard]] bool has_same_lane(size_t l) const {
    const ir::Lane& a = shorter_.lanes[l];
    const ir::Lane& b = longer_.lanes[l];
    if (std::tie(a.kind, a.device, a.peer) != std::tie(b.kind, b.device, b.peer) ||
        second_cut(l) < first_cut(l) || a.order.size() + inserted(l) != b.order.size()) {
      return false;
    }
    const std::vector<Meaning> of_a = meanings_of(shorter_, a.order);
    const std::vector<Meaning> of_b = meanings_of(longer_, b.order);
    if (!std::equal(of_a.begin(), of_a.begin() + second_cut(l), of_b.begin())) {
      return false;
    }
    std::map<ir::StageId, uint32_t> steps;
    for (size_t i = first_cut(l); i < second_cut(l); ++i) {
      const ir::Task& task = of_a[i].task;
      steps[task.stage] += task.kind() == ir::TaskKind::Step ? 1 : 0;
    }
    Shift by{.mini_batches = repeat_.period(),
             .micro_batches = repeat_.period() * shorter_.micro_batches};
    for (size_t i = first_cut(l); i < of_a.size(); ++i) {
      by.versions = steps[of_a[i].task.stage];
      if (Meaning{shifted(of_a[i].task, by), of_a[i].written_before} != of_b[i + inserted(l)]) {
        return false;
      }
    }
    return true;
  }

  /// What each task of the longer one waits for is what its like in the shorter one waits for.
  [[nodiscard]] bool has_same_edges() const {
    const Sources of_shorter(shorter_);
    const Sources of_longer(longer_);
    std::vector<Place> expected;
    std::vector<Place> found;
    for (size_t l = 0; l < longer_.lanes.size(); ++l) {
      const std::vector<TaskId>& order = longer_.lanes[l].order;
      for (size_t i = 0; i < order.size(); ++i) {
        const bool is_behind = i >= second_cut(l);
        const size_t like = is_behind ? i - inserted(l) : i;
        of_shorter.list(shorter_.lanes[l].order[like], expected);
        of_longer.list(order[i], found);
        for (Place& from : found) {
          if (!is_behind) {
            break;
          }
          if (from.second < inserted(from.first)) {
            return false;  // waits for the beginning: not the same later
          }
          from.second -= inserted(from.first);
        }
        std::ranges::sort(expected);
        std::ranges::sort(found);
        if (expected != found) {
          return false;
        }
      }
    }
    return true;
  }

  const ir::Schedule& shorter_;
  const ir::Schedule& longer_;
  const Repeat& repeat_;
};

/// The lanes whose transfers contend, in the order of their ids; none where the ids of two of them
/// are mixed, so that nothing can be said about later ones.
std::optional<std::vector<uint32_t>> contending_lanes_by_id(const ir::Schedule& schedule,
                                                            const scheduler::CostModel& costs) {
  const scheduler::LinkChannels channels(costs, schedule);
  std::vector<std::tuple<TaskId, TaskId, uint32_t>> ranges;
  for (uint32_t l = 0; l < schedule.lanes.size(); ++l) {
    const std::vector<TaskId>& order = schedule.lanes[l].order;
    if (order.empty() || channels.channels_of(ir::LaneId{l}).empty()) {
      continue;
    }
    if (!std::ranges::is_sorted(order)) {
      return std::nullopt;
    }
    ranges.emplace_back(order.front(), order.back(), l);
  }
  std::ranges::sort(ranges);
  std::vector<uint32_t> lanes;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (i > 0 && std::get<0>(ranges[i]) <= std::get<1>(ranges[i - 1])) {
      return std::nullopt;
    }
    lanes.push_back(std::get<2>(ranges[i]));
  }
  return lanes;
}

}  // namespace

bool is_one_period_longer(const ir::Schedule& shorter,
                          const ir::Schedule& longer,
                          const Repeat& repeat,
                          const scheduler::CostModel& costs) {
  const auto lanes = contending_lanes_by_id(shorter, costs);
  return lanes.has_value() && lanes == contending_lanes_by_id(longer, costs) &&
         Comparison(shorter, longer, repeat).holds();
}

}  // namespace xpipe::simulator
