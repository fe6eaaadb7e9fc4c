// The layers of a profile added up by stage, for the profile's samples: times, sizes, and what
// recomputation keeps. The step between a profile and stage_costs(), which scales these sums to a
// micro-batch and a device.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ir/ids.h"
#include "ir/profile.h"
#include "scheduler/partition.h"
#include "scheduler/stage_graph.h"

namespace xpipe::scheduler {

/// Sums stay at kTooLarge (scheduler/rounding.h) once they do not fit.
struct StageSums {
  ir::Nanos forward = 0;
  ir::Nanos backward_input = 0;
  ir::Nanos backward = 0;  ///< input and weight part
  ir::Bytes saved = 0;
  ir::Bytes saved_for_weight = 0;
  ir::Bytes parameters = 0;     ///< tied ones once
  ir::Bytes inputs = 0;         ///< of the stage: each tensor of an earlier stage, once
  ir::Bytes layer_inputs = 0;   ///< of its layers: each tensor that one of them reads, once
  ir::Bytes largest_saved = 0;  ///< of one layer
  ir::Bytes workspace = 0;      ///< the largest layer's
  /// One optimizer step; absent where a layer with parameters has no time for it.
  std::optional<ir::Nanos> update = 0;
};

/// By layer.
[[nodiscard]] std::vector<ir::StageId> stages_of_layers(const Partition& layers_per_stage);

/// By StageId. Requires: check_partition(profile, layers_per_stage).ok().
[[nodiscard]] std::vector<StageSums> sums_by_stage(const ir::Profile& profile,
                                                   const Partition& layers_per_stage);

/// What each stage hands each later one, neighbour or not: every layer's output once per stage that
/// uses it; and which stages share parameters. Requires: check_partition(profile,
/// layers_per_stage).ok().
[[nodiscard]] StageGraph graph_of(const ir::Profile& profile, const Partition& layers_per_stage);

}  // namespace xpipe::scheduler
