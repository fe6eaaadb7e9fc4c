#include "ir/dot.h"

#include "ir/task_names.h"
#include "ir/text.h"

namespace xpipe::ir {

std::string schedule_to_dot(const Schedule& schedule) {
  std::string text =
      "digraph schedule {\n  rankdir=LR;\n  node [shape=box, fontname=monospace, fontsize=10];\n";
  const auto node = [](TaskId id) { return "t" + std::to_string(index_of(id)); };
  for (std::size_t lane = 0; lane < schedule.lanes.size(); ++lane) {
    text += "  subgraph cluster_" + std::to_string(lane) + " {\n    label=\"" +
            lane_name(schedule.lanes[lane]) + "\";\n";
    for (const TaskId id : schedule.lanes[lane].order) {
      text += "    " + node(id) + " [label=\"" + to_text(schedule.task(id)) + "\"];\n";
    }
    text += "  }\n";
  }
  for (const Lane& lane : schedule.lanes) {
    for (std::size_t i = 1; i < lane.order.size(); ++i) {
      text += "  " + node(lane.order[i - 1]) + " -> " + node(lane.order[i]) + " [style=dotted];\n";
    }
  }
  for (const Edge& edge : schedule.edges) {
    text += "  " + node(edge.from) + " -> " + node(edge.to) + ";\n";
  }
  return text + "}\n";
}

}  // namespace xpipe::ir
