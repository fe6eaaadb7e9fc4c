// What the planner must know of each stage before it is cut: how its device, its links and the
// policy's promises price what it will be given. Asked of scheduler/stage_costs.h, by the costs of
// stages of one second, 1 GB of parameters, activations and output each, so that the planner and
// the simulator price alike.
#pragma once

#include <vector>

#include "ir/cluster.h"
#include "ir/profile.h"
#include "ir/status.h"
#include "scheduler/chain_planner.h"
#include "scheduler/policy.h"
#include "scheduler/stage_costs.h"

namespace xpipe::scheduler {

/// Terms of stage k on device k, for as many stages as the policy promises for.
///
/// Per mini-batch of B samples in T micro-batches a stage runs T forwards and backwards, a step and
/// the predictions or stashes promised; all is scaled to the profile's `samples`. It holds the
/// promised versions of its weights, one gradient, the optimizer's state (with the history that
/// predictions need), and the activations of the promised micro-batches in flight.
///
/// With a recompute the forward runs twice and the activations of one micro-batch are counted; what
/// the others keep, the stage's or the layers' inputs, is left out.
///
/// `request` says B, T, the optimizer and the recompute; its partition is not looked at. Errors:
/// those of stage_costs().
[[nodiscard]] ir::Result<std::vector<StageTerms>> stage_terms(const ir::Profile& profile,
                                                              const StageCostRequest& request,
                                                              const ir::Cluster& cluster,
                                                              const Promises& promises);

}  // namespace xpipe::scheduler
