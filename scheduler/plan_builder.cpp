#include "scheduler/plan_builder.h"

#include <utility>

namespace xpipe::scheduler {

PlanBuilder::PlanBuilder(std::uint32_t stages,
                         std::uint32_t micro_batches,
                         std::uint32_t mini_batches)
    : versions_(stages, 0) {
  plan_.micro_batches = micro_batches;
  plan_.mini_batches = mini_batches;
  plan_.devices.resize(stages);
  const std::size_t passes = std::size_t{2} * micro_batches * mini_batches;
  for (std::uint32_t k = 0; k < stages; ++k) {
    plan_.placement.push_back({ir::DeviceId(static_cast<std::uint16_t>(k))});
    plan_.devices[k].reserve(passes + mini_batches);
  }
}

ir::WantedWeights PlanBuilder::newest(std::uint32_t stage) const {
  return version(versions_[stage]);
}

ir::WantedWeights PlanBuilder::version(ir::Version version) {
  return {.version = version, .distance = 0, .copy_pass = {}, .copy_mini_batch = {}};
}

ir::WantedWeights PlanBuilder::predicted(ir::Version from,
                                         ir::Distance distance,
                                         ir::Pass pass,
                                         std::uint32_t mini_batch) {
  if (distance == 0) {
    return version(from);
  }
  return {.version = from,
          .distance = distance,
          .copy_pass = pass,
          .copy_mini_batch = ir::MiniBatch{mini_batch}};
}

void PlanBuilder::add(ir::OpKind kind,
                      std::uint32_t stage,
                      std::uint32_t index,
                      const ir::WantedWeights& weights) {
  plan_.devices[stage].push_back(
      {kind, ir::StageId(static_cast<std::uint16_t>(stage)), index, weights});
}

void PlanBuilder::forward(std::uint32_t stage,
                          std::uint32_t micro_batch,
                          const ir::WantedWeights& weights) {
  add(ir::OpKind::Forward, stage, micro_batch, weights);
}

void PlanBuilder::backward(std::uint32_t stage,
                           std::uint32_t micro_batch,
                           const ir::WantedWeights& weights) {
  add(ir::OpKind::Backward, stage, micro_batch, weights);
}

void PlanBuilder::step(std::uint32_t stage, std::uint32_t mini_batch) {
  add(ir::OpKind::Step, stage, mini_batch, newest(stage));
  ++versions_[stage];
}

ir::ComputePlan PlanBuilder::take() && {
  return std::move(plan_);
}

}  // namespace xpipe::scheduler
