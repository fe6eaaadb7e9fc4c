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

constexpr std::uint32_t kNobody = 0xffffffffU;
constexpr std::size_t kMaxRingShown = 24;

using Arrow = std::pair<std::uint32_t, std::uint32_t>;

/// Everything that `task` waits for directly.
template <typename Visit>
void for_each_predecessor(const Index& index, TaskId task, Visit&& visit) {
  for (const TaskId* p = index.begin_in(task); p != index.end_in(task); ++p) {
    visit(*p);
  }
  const std::uint32_t position = index.position[index_of(task)];
  if (position > 0) {
    visit(index.schedule.lane(index.schedule.task(task).lane).order[position - 1]);
  }
}

/// The tasks that can be run, each after those it waits for.
std::vector<TaskId> run_what_can_run(const Index& index) {
  const Schedule& schedule = index.schedule;
  const std::size_t count = schedule.tasks.size();
  std::vector<std::uint32_t> missing(count);
  std::vector<std::uint32_t> out_begin(count + 1, 0);  // Schedule::edges is sorted by `from`.
  for (const Edge& edge : schedule.edges) {
    ++out_begin[index_of(edge.from) + 1];
  }
  for (std::size_t i = 0; i < count; ++i) {
    out_begin[i + 1] += out_begin[i];
  }
  std::vector<TaskId> order;
  order.reserve(count);
  std::vector<TaskId> ready;
  for (std::uint32_t i = 0; i < count; ++i) {
    missing[i] = index.in_begin[i + 1] - index.in_begin[i] + (index.position[i] > 0 ? 1 : 0);
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
    for (std::uint32_t e = out_begin[index_of(task)]; e < out_begin[index_of(task) + 1]; ++e) {
      release(schedule.edges[e].to);
    }
    const std::vector<TaskId>& lane = schedule.lane(schedule.task(task).lane).order;
    if (index.position[index_of(task)] + 1 < lane.size()) {
      release(lane[index.position[index_of(task)] + 1]);
    }
  }
  return order;
}

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

std::string describe_ring(const Index& index, const std::vector<TaskId>& ring) {
  const Schedule& schedule = index.schedule;
  std::string text = std::to_string(ring.size()) + " tasks wait for each other in a ring:";
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
  text += "\n  expected: no ring; change the order of a lane or take out an edge";
  return text;
}

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
  std::vector<std::uint32_t> size(components, 0);
  for (std::uint32_t i = 0; i < count; ++i) {
    ++size[component[i]];
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (size[component[i]] > 1) {
      findings.add("cycle", TaskId{i},
                   describe_ring(index, ring_through(index, TaskId{i}, component)));
      size[component[i]] = 0;  // One ring each.
    }
  }
}

}  // namespace

Index::Index(const Schedule& s)
    : schedule(s), position(s.tasks.size()), in_begin(s.tasks.size() + 1, 0), in(s.edges.size()) {
  for (const Lane& lane : s.lanes) {
    for (std::uint32_t i = 0; i < lane.order.size(); ++i) {
      position[index_of(lane.order[i])] = i;
    }
  }
  for (const Edge& edge : s.edges) {
    ++in_begin[index_of(edge.to) + 1];
  }
  for (std::size_t i = 0; i < s.tasks.size(); ++i) {
    in_begin[i + 1] += in_begin[i];
  }
  std::vector<std::uint32_t> next(in_begin.begin(), in_begin.end() - 1);
  for (const Edge& edge : s.edges) {
    in[next[index_of(edge.to)]++] = edge.from;
  }
}

bool Index::waits_directly(TaskId later, TaskId earlier) const {
  const LaneId lane = schedule.task(earlier).lane;
  const std::uint32_t least = position[index_of(earlier)];
  if (schedule.task(later).lane == lane) {
    return position[index_of(later)] > least;
  }
  return std::any_of(begin_in(later), end_in(later), [&](TaskId source) {
    return schedule.task(source).lane == lane && position[index_of(source)] >= least;
  });
}

std::vector<TaskId> check_cycles(const Index& index, Findings& findings) {
  std::vector<TaskId> order = run_what_can_run(index);
  if (order.size() < index.schedule.tasks.size()) {
    try {
      report_rings(index, order, findings);
    } catch (const std::exception& error) {
      findings.add(
          "cycle", "schedule",
          std::string("some tasks wait for each other; no ring could be told: ") + error.what());
    }
  }
  return order;
}

}  // namespace xpipe::ir::validation
