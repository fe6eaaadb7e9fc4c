// From a profile, a cut and a cluster to what the schedule's tasks cost: the cost model and the
// graph of what the stages send each other. Everything is added up over a stage's layers first,
// scaled to the micro-batch and the device, and rounded once, half up.
//
//   micro-batch   B/T of the profile's `samples`:  time * B / (T * samples) / device speed
//                 bytes likewise; parameters and optimizer state do not scale
//   whole backward = its sum rounded; the weight part is what the input part leaves of it
//   a tensor      is sent once to each later stage that uses it, however many edges do (design.md
//                 §10, Cuts); what one stage sends another is one message
//
// With --recompute a forward keeps the stage's input (stage) or its layers' inputs (layer; each
// tensor once); the recompute brings back all that is saved, or besides the inputs the largest
// layer's part at a time. It takes a forward's time. What stage 0 reads is the loader's.
//
// A clip reads a stage's gradients for their norm, brings one number of every stage together as an
// all-reduce over all devices does, and reads and writes the gradients to scale them (whether it
// must is not known beforehand). A sum of tied weights is an all-reduce of them over the two
// stages.
//
// Predictions and stashes take the bytes that they touch (scheduler/optimizer_state.h) over the
// device's memory bandwidth; so do steps, but where the profile has measured them (update_us).
#pragma once

#include <cstdint>
#include <vector>

#include "ir/cluster.h"
#include "ir/ids.h"
#include "ir/profile.h"
#include "ir/status.h"
#include "scheduler/cost_model.h"
#include "scheduler/optimizer_state.h"
#include "scheduler/partition.h"
#include "scheduler/recompute_pass.h"
#include "scheduler/stage_graph.h"

namespace xpipe::scheduler {

struct StageCostRequest {
  Partition layers_per_stage;
  std::uint32_t batch_size = 0;     ///< B, samples of one mini-batch; > 0
  std::uint32_t micro_batches = 1;  ///< T; 1 for policies whose unit is the whole mini-batch
  OptimizerKind optimizer = OptimizerKind::Adam;
  Extrapolation extrapolation = Extrapolation::OptimizerStep;
  /// By StageId, then replica; empty: stage k on device k.
  std::vector<std::vector<ir::DeviceId>> placement = {};
  ir::Nanos task_overhead = 0;
  Recompute recompute = Recompute::None;  ///< of the schedule that is priced
  bool clips = false;                     ///< the schedule clips by the norm over all stages
};

struct StagedModel {
  CostModel costs;  ///< with notes on what was assumed
  StageGraph graph;
};

/// Errors: Usage for a partition, placement or T that cannot be (all at once); BadInput when the
/// cluster has neither the link of a pair that exchanges tensors nor a default; Usage when a time
/// or size does not fit.
[[nodiscard]] ir::Result<StagedModel> stage_costs(const ir::Profile& profile,
                                                  const StageCostRequest& request,
                                                  const ir::Cluster& cluster);

/// `devices` devices of speed 1 that know nothing of their memory, and one kind of link between
/// all.
[[nodiscard]] ir::Cluster uniform_cluster(std::uint32_t devices, const ir::LinkSpec& link);

}  // namespace xpipe::scheduler
