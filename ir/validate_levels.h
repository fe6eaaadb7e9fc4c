// Internal to the validator (ir/validate.h): what its levels share, and the levels themselves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/replicas.h"
#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::ir::validation {

/// Collects the faults of one level.
class Findings {
 public:
  explicit Findings(const Schedule& schedule) : schedule_(schedule) {}

  /// A fault of the schedule, a stage, a lane or an edge: told before those of tasks.
  void add(std::string_view code, std::string where, std::string message);

  void add(std::string_view code, TaskId task, std::string message);

  [[nodiscard]] bool empty() const { return counts_.empty(); }

  /// In the order of tasks, cut at kMaxFaultsPerCode.
  [[nodiscard]] std::vector<Diagnostic> take() &&;

 private:
  struct Finding {
    std::uint64_t order = 0;  ///< 0: not of a task; else task id + 1
    Diagnostic diagnostic;
  };

  [[nodiscard]] bool counted(std::string_view code);

  const Schedule& schedule_;
  std::vector<Finding> findings_;
  std::map<std::string, std::size_t, std::less<>> counts_;
};

/// Where a task stands.
struct Place {
  LaneId lane{};
  std::uint32_t position = 0;
};

/// Kinds, places and edges in a form to look things up: a few bytes a task, so that a level reads
/// whole tasks only where it must.
struct Index {
  /// Looks at no lane and no edge yet: check_shape() fills in the positions, check_cycles() the
  /// rows.
  explicit Index(const Schedule& schedule);

  /// Edges from `task`. Requires: the rows.
  [[nodiscard]] std::span<const Edge> out(TaskId task) const {
    const std::uint32_t begin = out_begin[index_of(task)];
    return {schedule.edges.data() + begin, out_begin[index_of(task) + 1] - begin};
  }

  /// The sources of edges to `task`. Requires: edges in range. Sorts all edges at the first call:
  /// for what few legal schedules ask.
  [[nodiscard]] std::span<const TaskId> in(TaskId task) const;

  /// There is an edge between the two. Requires: the rows.
  [[nodiscard]] bool has_edge(TaskId from, TaskId to) const {
    const std::span<const Edge> edges = out(from);
    return std::any_of(edges.begin(), edges.end(), [to](const Edge& e) { return e.to == to; });
  }

  /// `later` stands behind `earlier` in its lane, or has an edge from `earlier` or from a task
  /// behind it. Requires: the rows.
  [[nodiscard]] bool waits_directly(TaskId later, TaskId earlier) const;

  /// The replica of its stage that a task is of; a number over all stages. Requires: a sound shape.
  [[nodiscard]] std::size_t replica(TaskId task) const { return replicas.of(schedule.task(task)); }

  const Schedule& schedule;
  Replicas replicas;
  std::vector<TaskKind> kind;            ///< by TaskId
  std::vector<Place> place;              ///< by TaskId; the lane that the task says
  std::vector<std::uint32_t> out_begin;  ///< by TaskId: rows of Schedule::edges

 private:
  mutable std::vector<std::uint32_t> in_begin_;
  mutable std::vector<TaskId> in_;
};

/// Whether one task is always over before another starts: exact, between tasks of compute lanes.
class Order {
 public:
  /// `index` must outlive the order. Requires: no cycle.
  explicit Order(const Index& index);

  /// Requires: two tasks of one replica.
  [[nodiscard]] bool before(TaskId a, TaskId b) const {
    const Place& first = index_.place[index_of(a)];
    const Place& second = index_.place[index_of(b)];
    return first.lane == second.lane ? first.position < second.position : before_across_lanes(a, b);
  }

  /// The replica's tasks stand on more than one compute lane.
  [[nodiscard]] bool on_several_lanes(std::size_t replica) const { return several_lanes_[replica]; }

  /// No replica is on several lanes: its tasks run in the order of one lane.
  [[nodiscard]] bool is_by_lane() const { return column_count_ == 0; }

 private:
  [[nodiscard]] bool before_across_lanes(TaskId a, TaskId b) const;

  const Index& index_;
  std::vector<bool> several_lanes_;     ///< by replica
  std::vector<std::uint32_t> columns_;  ///< by LaneId; kNoColumn for lanes without a clock
  std::size_t column_count_ = 0;
  /// By task and column: how many tasks of that lane are over when the task has ended.
  std::vector<std::uint32_t> clocks_;
};

/// Where the compute tasks of each stage and micro-batch are.
class Grid {
 public:
  /// Requires: stages x micro-batches fits in memory (check_counts has seen to that).
  explicit Grid(const Index& index);

  /// The task of `kind` (Forward to Recompute), if there is one; with several the first.
  [[nodiscard]] std::optional<TaskId> find(TaskKind kind, StageId stage, std::uint64_t j) const {
    const std::vector<TaskId>& cells = cells_[static_cast<std::size_t>(kind)];
    const TaskId id = cells.empty() ? kNone : cells[index_of(stage) * micro_batches + j];
    return id == kNone ? std::nullopt : std::optional(id);
  }

  /// There are tasks of `kind` (Forward to Recompute).
  [[nodiscard]] bool has(TaskKind kind) const {
    return !cells_[static_cast<std::size_t>(kind)].empty();
  }

  /// The backward, or the input part of a split one.
  [[nodiscard]] std::optional<TaskId> gradient(StageId stage, std::uint64_t j) const;

  std::uint64_t micro_batches = 0;               ///< of the whole segment
  bool trains = false;                           ///< there are backwards or steps
  std::vector<std::pair<TaskId, TaskId>> twins;  ///< (another, first) of one cell

 private:
  static constexpr TaskId kNone{0xffffffffU};
  std::vector<TaskId> cells_[5];  ///< by TaskKind, Forward to Recompute; empty: no such task
};

/// Fills in the index's positions.
void check_shape(Index& index, Findings& findings);
/// Fills in the index's rows; faults if not every task can run. Requires: a sound shape.
void check_cycles(Index& index, Findings& findings);
/// The tasks that can run, each after those it waits for: all of them where there is no cycle.
/// Requires: the rows.
[[nodiscard]] std::vector<TaskId> run_what_can_run(const Index& index);
/// Says so when the schedule has far too few tasks for its sizes; a Grid needs that it has not.
void check_counts(const Schedule& schedule, Findings& findings);
/// Each micro-batch once per stage and direction, and the order of passes and steps.
void check_passes(const Index& index, const Grid& grid, const Order& order, Findings& findings);
/// Sums of tied weights and clips: between the gradients that they use and the step.
void check_exchanges(const Index& index, const Order& order, Findings& findings);
/// Versions, by replaying every slot; slot races.
void check_slots(const Index& index, const Order& order, Findings& findings);
/// A recompute reads what its backward reads.
void check_recomputes(const Index& index, const Grid& grid, const Order& order, Findings& findings);
void check_communication(const Index& index, const Grid& grid, Findings& findings);
void check_resources(const Index& index, Findings& findings);

}  // namespace xpipe::ir::validation
