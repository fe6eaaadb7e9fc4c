// Builds a ComputePlan op by op and keeps count of each stage's master version,
// so that a policy says "newest" or "predicted for this mini-batch" and not
// numbers.
//
//   PlanBuilder plan(request.stages, T, N);
//   plan.forward(k, j, plan.newest(k));
//   plan.backward(k, j, plan.version(3));
//   plan.step(k, i);
#pragma once

#include <cstdint>
#include <vector>

#include "ir/compute_plan.h"
#include "ir/ids.h"

namespace xpipe::scheduler {

class PlanBuilder {
 public:
  /// One stage per device, stage k on device k.
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

  void forward(std::uint32_t stage, std::uint32_t micro_batch, const ir::WantedWeights& weights);
  void backward(std::uint32_t stage, std::uint32_t micro_batch, const ir::WantedWeights& weights);

  /// The update of `stage` with the gradients of `mini_batch`.
  void step(std::uint32_t stage, std::uint32_t mini_batch);

  [[nodiscard]] ir::ComputePlan take() &&;

 private:
  void add(ir::OpKind kind,
           std::uint32_t stage,
           std::uint32_t index,
           const ir::WantedWeights& weights);

  ir::ComputePlan plan_;
  std::vector<ir::Version> versions_;  ///< by stage
};

}  // namespace xpipe::scheduler
