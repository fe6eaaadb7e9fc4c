#include "scheduler/stage_sums.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "scheduler/rounding.h"

namespace xpipe::scheduler {

namespace {

using ir::Bytes;
using ir::index_of;
using ir::StageId;
using std::size_t;

void add_to(std::int64_t& sum, std::int64_t value) {
  sum = capped_sum(sum, value);
}

/// The layers whose outputs each stage reads, those of the stage itself included.
std::set<std::pair<StageId, std::uint32_t>> tensors_read(const ir::Profile& profile,
                                                         const std::vector<StageId>& stage_of) {
  std::set<std::pair<StageId, std::uint32_t>> tensors;
  for (const ir::LayerEdge& edge : profile.edges) {
    tensors.emplace(stage_of[edge.to], edge.from);
  }
  return tensors;
}

}  // namespace

std::vector<StageId> stages_of_layers(const Partition& layers_per_stage) {
  std::vector<StageId> stage_of;
  for (size_t k = 0; k < layers_per_stage.size(); ++k) {
    stage_of.insert(stage_of.end(), layers_per_stage[k], StageId(static_cast<std::uint16_t>(k)));
  }
  return stage_of;
}

std::vector<StageSums> sums_by_stage(const ir::Profile& profile,
                                     const Partition& layers_per_stage) {
  const std::vector<StageId> stage_of = stages_of_layers(layers_per_stage);
  std::vector<StageSums> sums(layers_per_stage.size());
  for (size_t l = 0; l < profile.layers.size(); ++l) {
    const ir::LayerProfile& layer = profile.layers[l];
    StageSums& s = sums[index_of(stage_of[l])];
    add_to(s.forward, layer.forward);
    add_to(s.backward_input, layer.backward_input);
    add_to(s.backward, layer.backward_input);
    add_to(s.backward, layer.backward_weight);
    add_to(s.saved, layer.saved_bytes);
    add_to(s.saved_for_weight, layer.saved_for_weight_bytes);
    add_to(s.parameters, layer.parameter_bytes);
    s.largest_saved = std::max(s.largest_saved, layer.saved_bytes);
    s.workspace = std::max(s.workspace, layer.workspace_bytes);
    if (layer.parameter_bytes > 0 && !layer.update) {
      s.update.reset();
    }
    if (s.update) {
      add_to(*s.update, layer.update.value_or(0));
    }
  }
  for (const ir::LayerTie& tie : profile.ties) {
    if (stage_of[tie.first] == stage_of[tie.second]) {
      StageSums& s = sums[index_of(stage_of[tie.first])];
      s.parameters = std::max(s.parameters - tie.bytes, Bytes{0});
    }
  }
  for (const auto& [stage, layer] : tensors_read(profile, stage_of)) {
    StageSums& s = sums[index_of(stage)];
    const Bytes bytes = profile.layers[layer].output_bytes;
    add_to(s.layer_inputs, bytes);
    if (stage_of[layer] != stage) {
      add_to(s.inputs, bytes);
    }
  }
  return sums;
}

StageGraph graph_of(const ir::Profile& profile, const Partition& layers_per_stage) {
  const std::vector<StageId> stage_of = stages_of_layers(layers_per_stage);
  std::map<std::pair<StageId, StageId>, Bytes> sums;
  for (const auto& [stage, layer] : tensors_read(profile, stage_of)) {
    if (stage_of[layer] != stage) {
      add_to(sums[{stage_of[layer], stage}], profile.layers[layer].output_bytes);
    }
  }
  StageGraph graph{.stages = static_cast<std::uint32_t>(layers_per_stage.size()), .links = {}};
  for (const auto& [pair, bytes] : sums) {
    graph.links.push_back({pair.first, pair.second, bytes});
  }
  std::map<std::pair<StageId, StageId>, Bytes> tied;
  for (const ir::LayerTie& tie : profile.ties) {
    if (stage_of[tie.first] != stage_of[tie.second]) {
      add_to(tied[{stage_of[tie.first], stage_of[tie.second]}], tie.bytes);
    }
  }
  for (const auto& [pair, bytes] : tied) {
    graph.ties.push_back({pair.first, pair.second, bytes});
  }
  return graph;
}

}  // namespace xpipe::scheduler
