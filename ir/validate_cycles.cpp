#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/strong_components.hpp>
#include <boost/property_map/property_map.hpp>

#include "ir/task_names.h"
#include "ir/text.h"
#include "ir/validate_levels.h"

namespace xpipe::ir::validation {

namespace {

// Neither a task nor a lane.
constexpr std::uint32_t kNobody = 0xffffffffU;
constexpr std::uint32_t kSeveral = 0xfffffffeU;
constexpr std::uint32_t kOver = 0xfffffffdU;
constexpr std::size_t kMaxRingShown = 24;

using Arrow = std::pair<std::uint32_t, std::uint32_t>;

/// Everything that `task` waits for directly.
template <typename Visit>
void for_each_predecessor(const Index& index, TaskId task, Visit&& visit) {
  for (const TaskId source : index.in(task)) {
    visit(source);
  }
  const auto& [lane, position] = index.place[index_of(task)];
  if (position > 0) {
    visit(index.schedule.lane(lane).order[position - 1]);
  }
}

/// Fills in the rows of edges by source, as Schedule::edges is sorted so.
void fill_rows(Index& index) {
  const Schedule& schedule = index.schedule;
  index.out_begin.clear();
  index.out_begin.reserve(schedule.tasks.size() + 1);
  const auto edges = static_cast<std::uint32_t>(schedule.edges.size());
  for (std::uint32_t e = 0; e < edges; ++e) {
    while (index.out_begin.size() <= index_of(schedule.edges[e].from)) {
      index.out_begin.push_back(e);
    }
  }
  index.out_begin.resize(schedule.tasks.size() + 1, edges);
}

/// Edges to each task.
std::vector<std::uint32_t> edges_in(const Schedule& schedule) {
  std::vector<std::uint32_t> count(schedule.tasks.size(), 0);
  for (const Edge& edge : schedule.edges) {
    ++count[index_of(edge.to)];
  }
  return count;
}

/// By TaskId: the source of the edge to it; kNobody without one, kSeveral with more.
std::vector<std::uint32_t> only_sources(const Schedule& schedule) {
  std::vector<std::uint32_t> source(schedule.tasks.size(), kNobody);
  for (const Edge& edge : schedule.edges) {
    std::uint32_t& known = source[index_of(edge.to)];
    known = known == kNobody ? index_of(edge.from) : kSeveral;
  }
  return source;
}

/// Whether every task can be run. Each lane runs until it waits for a task of another one, which
/// wakes it: what is read of a lane lies in a row, and no task is looked at twice but by who waits.
class LaneRun {
 public:
  explicit LaneRun(const Index& index)
      : index_(index),
        lanes_(index.schedule.lanes),
        source_(only_sources(index.schedule)),
        waiter_(index.schedule.tasks.size(), kNobody),
        next_waiter_(lanes_.size(), kNobody),
        done_(lanes_.size(), 0) {}

  bool runs_through() {
    for (std::uint32_t l = 0; l < lanes_.size(); ++l) {
      runnable_.push_back(l);
    }
    while (!runnable_.empty()) {
      const std::uint32_t lane = runnable_.back();
      runnable_.pop_back();
      run(lane);
    }
    std::size_t ran = 0;
    for (const std::size_t done : done_) {
      ran += done;
    }
    return ran == waiter_.size();
  }

 private:
  void run(std::uint32_t lane) {
    const std::vector<TaskId>& order = lanes_[lane].order;
    std::size_t next = done_[lane];
    for (; next < order.size(); ++next) {
      const std::uint32_t task = index_of(order[next]);
      const std::uint32_t source = first_not_over(task);
      if (source != kNobody) {
        next_waiter_[lane] = waiter_[source];
        waiter_[source] = lane;
        break;
      }
      for (std::uint32_t l = waiter_[task]; l != kNobody; l = next_waiter_[l]) {
        runnable_.push_back(l);
      }
      waiter_[task] = kOver;
    }
    done_[lane] = next;
  }

  /// Of the sources of edges to `task`; kNobody when all are over.
  [[nodiscard]] std::uint32_t first_not_over(std::uint32_t task) const {
    const std::uint32_t source = source_[task];
    if (source == kNobody) {
      return kNobody;
    }
    if (source != kSeveral) {
      return waiter_[source] == kOver ? kNobody : source;
    }
    for (const TaskId one : index_.in(TaskId{task})) {
      if (waiter_[index_of(one)] != kOver) {
        return index_of(one);
      }
    }
    return kNobody;
  }

  const Index& index_;
  const std::vector<Lane>& lanes_;
  std::vector<std::uint32_t> source_;
  /// By TaskId: kOver, or else the first lane of those that wait for it, or kNobody.
  std::vector<std::uint32_t> waiter_;
  std::vector<std::uint32_t> next_waiter_;  ///< by LaneId: the next that waits for the same task
  std::vector<std::size_t> done_;           ///< by LaneId: tasks that are over
  std::vector<std::uint32_t> runnable_;     ///< lanes
};

/// A shortest ring through `start` within its component, each task waiting for the next.
std::vector<TaskId> ring_through(const Index& index,
                                 TaskId start,
                                 const std::vector<std::uint32_t>& component) {
  std::vector<std::uint32_t> came_from(component.size(), kNobody);
  std::deque<TaskId> queue = {start};
  while (!queue.empty()) {
    const TaskId task = queue.front();
    queue.pop_front();
    bool closed = false;
    for_each_predecessor(index, task, [&](TaskId before) {
      if (before == start) {
        closed = true;
      } else if (component[index_of(before)] == component[index_of(start)] &&
                 came_from[index_of(before)] == kNobody) {
        came_from[index_of(before)] = index_of(task);
        queue.push_back(before);
      }
    });
    if (closed) {
      std::vector<TaskId> ring = {task};
      while (ring.back() != start) {
        ring.push_back(TaskId{came_from[index_of(ring.back())]});
      }
      std::reverse(ring.begin(), ring.end());
      return ring;
    }
  }
  return {start};
}

std::string describe_ring(const Index& index, const std::vector<TaskId>& ring, std::size_t behind) {
  const Schedule& schedule = index.schedule;
  std::string text =
      "deadlock: " + std::to_string(ring.size()) + " tasks wait for each other in a ring:";
  const std::size_t shown = std::min(ring.size(), kMaxRingShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const TaskId task = ring[i];
    const TaskId next = ring[(i + 1) % ring.size()];
    const Lane& lane = schedule.lane(schedule.task(task).lane);
    const bool same_lane = schedule.task(next).lane == schedule.task(task).lane;
    text += "\n  device " + std::to_string(index_of(lane.device)) + ": " +
            to_text(schedule.task(task)) + " waits for " + to_text(schedule.task(next)) +
            (same_lane ? ", before it in lane \"" + lane_name(lane) + "\"" : ", by an edge");
  }
  if (shown < ring.size()) {
    text += "\n  ... and " + std::to_string(ring.size() - shown) + " more";
  }
  if (behind > 0) {
    text += "\n  " + std::to_string(behind) +
            (behind == 1 ? " more ring waits" : " more rings wait") +
            " for this one, or for another that is told";
  }
  text += "\n  expected: no ring; change the order of a lane or take out an edge";
  return text;
}

/// Tasks that all wait for each other, or a single one.
struct Component {
  std::size_t size = 0;
  bool waits = false;  ///< for a ring, through others or at once
};

/// Those that wait for no other ring: the others are what follows from them.
void report_rings(const Index& index, const std::vector<TaskId>& order, Findings& findings) {
  using Graph =
      boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, boost::no_property,
                                         boost::no_property, std::uint32_t, std::uint32_t>;
  const std::size_t count = index.schedule.tasks.size();
  std::vector<bool> ran(count, false);
  for (const TaskId task : order) {
    ran[index_of(task)] = true;
  }
  std::vector<Arrow> arrows;  // Sorted, as they are found in the order of their sources.
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!ran[i]) {
      for_each_predecessor(index, TaskId{i}, [&](TaskId before) {
        if (!ran[index_of(before)]) {
          arrows.emplace_back(i, index_of(before));
        }
      });
    }
  }
  const Graph graph(boost::edges_are_sorted, arrows.begin(), arrows.end(),
                    static_cast<std::uint32_t>(count));
  std::vector<std::uint32_t> component(count);
  const std::uint32_t components = boost::strong_components(
      graph, boost::make_iterator_property_map(component.begin(), get(boost::vertex_index, graph)));
  std::vector<Component> rings(components);
  for (std::uint32_t i = 0; i < count; ++i) {
    ++rings[component[i]].size;
  }
  // Components are numbered so that each waits only for those below it.
  std::sort(arrows.begin(), arrows.end(), [&component](const Arrow& a, const Arrow& b) {
    return component[a.first] < component[b.first];
  });
  std::size_t behind = 0;
  for (const auto& [task, before] : arrows) {
    const Component& first = rings[component[before]];
    Component& second = rings[component[task]];
    if (&first != &second && !second.waits && (first.size > 1 || first.waits)) {
      second.waits = true;
      behind += second.size > 1 ? 1 : 0;
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    Component& ring = rings[component[i]];
    if (ring.size > 1 && !ring.waits) {
      findings.add("cycle", TaskId{i},
                   describe_ring(index, ring_through(index, TaskId{i}, component), behind));
      ring.size = 0;  // One ring each.
      behind = 0;
    }
  }
}

}  // namespace

Index::Index(const Schedule& s) : schedule(s), replicas(s) {
  kind.reserve(s.tasks.size());
  place.reserve(s.tasks.size());
  for (const Task& task : s.tasks) {
    kind.push_back(task.kind());
    place.push_back({task.lane, 0});
  }
}

std::span<const TaskId> Index::in(TaskId task) const {
  if (in_begin_.empty()) {
    in_begin_.resize(schedule.tasks.size() + 1, 0);
    in_.resize(schedule.edges.size());
    for (const Edge& edge : schedule.edges) {
      ++in_begin_[index_of(edge.to) + 1];
    }
    for (std::size_t i = 1; i < in_begin_.size(); ++i) {
      in_begin_[i] += in_begin_[i - 1];
    }
    std::vector<std::uint32_t> next(in_begin_.begin(), in_begin_.end() - 1);
    for (const Edge& edge : schedule.edges) {
      in_[next[index_of(edge.to)]++] = edge.from;
    }
  }
  const std::uint32_t begin = in_begin_[index_of(task)];
  return {in_.data() + begin, in_begin_[index_of(task) + 1] - begin};
}

bool Index::waits_directly(TaskId later, TaskId earlier) const {
  const Place first = place[index_of(earlier)];
  if (place[index_of(later)].lane == first.lane) {
    return place[index_of(later)].position > first.position;
  }
  if (has_edge(earlier, later)) {
    return true;
  }
  const std::span<const TaskId> sources = in(later);
  return std::any_of(sources.begin(), sources.end(), [this, first](TaskId source) {
    const Place& other = place[index_of(source)];
    return other.lane == first.lane && other.position >= first.position;
  });
}

std::vector<TaskId> run_what_can_run(const Index& index) {
  const Schedule& schedule = index.schedule;
  std::vector<std::uint32_t> missing = edges_in(schedule);
  std::vector<TaskId> order;
  order.reserve(missing.size());
  std::vector<TaskId> ready;
  for (std::uint32_t i = 0; i < missing.size(); ++i) {
    missing[i] += index.place[i].position > 0 ? 1 : 0;
    if (missing[i] == 0) {
      ready.push_back(TaskId{i});
    }
  }
  const auto release = [&missing, &ready](TaskId next) {
    if (--missing[index_of(next)] == 0) {
      ready.push_back(next);
    }
  };
  while (!ready.empty()) {
    const TaskId task = ready.back();
    ready.pop_back();
    order.push_back(task);
    for (const Edge& edge : index.out(task)) {
      release(edge.to);
    }
    const Place& place = index.place[index_of(task)];
    const std::vector<TaskId>& lane = schedule.lane(place.lane).order;
    if (place.position + 1 < lane.size()) {
      release(lane[place.position + 1]);
    }
  }
  return order;
}

void check_cycles(Index& index, Findings& findings) {
  fill_rows(index);
  if (LaneRun(index).runs_through()) {
    return;
  }
  try {
    report_rings(index, run_what_can_run(index), findings);
  } catch (const std::exception& error) {
    findings.add(
        "cycle", "schedule",
        std::string("some tasks wait for each other; no ring could be told: ") + error.what());
  }
}

}  // namespace xpipe::ir::validation
