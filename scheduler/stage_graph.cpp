#include "scheduler/stage_graph.h"

#include "ir/task.h"

namespace xpipe::scheduler {

StageGraph chain_of(std::uint32_t stages) {
  StageGraph graph{.stages = stages, .links = {}};
  for (std::uint32_t k = 0; k + 1 < stages; ++k) {
    graph.links.push_back({ir::StageId(static_cast<std::uint16_t>(k)),
                           ir::StageId(static_cast<std::uint16_t>(k + 1)), ir::kUnknownBytes});
  }
  return graph;
}

}  // namespace xpipe::scheduler
