// Checkpoints, exports and the trained model where several processes train: rank 0 alone reads and
// writes files, so no folder has to be shared, and layers travel to and from it one at a time.
//
//   rank 0   writes layer 0, 1   "next" ~~> <~~ layer 2   writes it   "next" ~~> ...   renames
//   rank 1                       makes its bytes
//
// All ranks call the same functions, at a drained border. Errors are those of peers beside what is
// said; one of rank 0's disk reaches the others as its failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "executor/peers.h"
#include "executor/torch/checkpoint_plan.h"
#include "executor/torch/model.h"
#include "executor/torch/rank_records.h"
#include "executor/torch/stage.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

/// open_checkpoints() of rank 0, for all: elsewhere a plan without a folder, that of another
/// process.
[[nodiscard]] ir::Result<CheckpointPlan> open_checkpoints_at_zero(Peers& peers,
                                                                  const TrainConfig& config,
                                                                  const TrainFacts& facts);

/// Where the layers of a model are (`names` below: theirs, in order): `stages` holds the first
/// replica of each stage, those of other ranks without layers; `partition` their numbers of layers.
/// All must outlive it.
struct RankedLayers {
  const RankPlan& ranks;
  const std::vector<Stage*>& stages;
  const std::vector<std::uint32_t>& partition;
};

/// write_layers() of all ranks' layers into `begun`, a folder of rank 0. Returns their files there,
/// elsewhere nothing.
[[nodiscard]] ir::Result<std::vector<LayerFile>> write_layers_at_zero(
    Peers& peers,
    const RankedLayers& layers,
    const std::vector<std::string>& names,
    const std::string& begun);

/// load_layers() of `stages`, all replicas; the files are rank 0's.
[[nodiscard]] ir::Status load_layers_from_zero(Peers& peers,
                                               const RankPlan& ranks,
                                               std::vector<Stage>& stages,
                                               const std::vector<std::uint32_t>& replicas,
                                               const std::vector<std::uint32_t>& partition,
                                               const std::vector<std::string>& names,
                                               const ResumePoint& from);

/// export_weights() of all layers, to a file of rank 0.
[[nodiscard]] ir::Status export_weights_at_zero(Peers& peers,
                                                const RankedLayers& layers,
                                                const std::vector<std::string>& names,
                                                const std::string& path);

/// Puts the trained weights and buffers of other ranks' layers into rank 0's `model`.
[[nodiscard]] ir::Status gather_model_at_zero(Peers& peers,
                                              const RankedLayers& layers,
                                              const Model& model);

}  // namespace xpipe::executor::nn
