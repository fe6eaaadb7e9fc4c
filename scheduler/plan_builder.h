// Builds a ComputePlan op by op and keeps count of each stage's master version,
// so that a policy says "newest" or "predicted for this mini-batch" and not
// numbers.
//
//   PlanBuilder plan(request);
//   plan.forward(k, j, plan.newest(k));
//   plan.backward(k, j, plan.version(3));
//   plan.step(k, i);
//
// A policy writes one order for each stage, whatever its replicas: micro-batch j goes to replica
// j mod r, a step to all of them with an all-reduce before it. So all replicas step at the same
// places of the stage's order, and `newest` is one version for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/compute_plan.h"
#include "ir/ids.h"
#include "scheduler/policy.h"

namespace xpipe::scheduler {

class PlanBuilder {
 public:
  /// Each stage and replica on a device of its own, in order.
  explicit PlanBuilder(const PlanRequest& request);

  /// Without replicas: stage k on device k.
  PlanBuilder(std::uint32_t stages, std::uint32_t micro_batches, std::uint32_t mini_batches);

  /// The master's version on stage k at this point of its order.
  [[nodiscard]] ir::Version newest_version(std::uint32_t stage) const { return versions_[stage]; }

  [[nodiscard]] ir::WantedWeights newest(std::uint32_t stage) const;
  [[nodiscard]] static ir::WantedWeights version(ir::Version version);

  /// The copy predicted from `from`, `distance` steps ahead, for the passes of
  /// one mini-batch. The first op that wants it makes it, so the master must be
  /// at `from` there. Distance 0 is version(from).
  [[nodiscard]] static ir::WantedWeights predicted(ir::Version from,
                                                   ir::Distance distance,
                                                   ir::Pass pass,
                                                   std::uint32_t mini_batch);

  /// Makes the copy here, on every replica that reads it; nothing without replicas. For copies that
  /// micro-batches of several replicas read: the first reader makes it, and between the first
  /// readers of two replicas there may be a step.
  void predict(std::uint32_t stage, const ir::WantedWeights& copy);

  void forward(std::uint32_t stage, std::uint32_t micro_batch, const ir::WantedWeights& weights);
  void backward(std::uint32_t stage, std::uint32_t micro_batch, const ir::WantedWeights& weights);

  /// The update of `stage` with the gradients of `mini_batch`.
  void step(std::uint32_t stage, std::uint32_t mini_batch);

  [[nodiscard]] ir::ComputePlan take() &&;

 private:
  /// To the replica that has micro-batch `index`.
  void add(ir::OpKind kind,
           std::uint32_t stage,
           std::uint32_t index,
           const ir::WantedWeights& weights);

  void add_to_all(const ir::ComputeOp& op);

  ir::ComputePlan plan_;
  std::vector<ir::Version> versions_;  ///< by stage
  std::vector<std::size_t> first_;     ///< by stage: the device of its first replica
};

}  // namespace xpipe::scheduler
