#include "scheduler/plan_builder.h"

#include <utility>

namespace xpipe::scheduler {

PlanBuilder::PlanBuilder(const PlanRequest& request) : versions_(request.stages, 0) {
  plan_.micro_batches = request.micro_batches;
  plan_.mini_batches = request.mini_batches;
  plan_.devices.resize(request.depth());
  const std::size_t passes = std::size_t{2} * request.micro_batches * request.mini_batches;
  std::size_t device = 0;
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    const std::uint32_t count = request.replicas_of(k);
    const std::size_t steps = std::size_t{request.mini_batches} * (count > 1 ? 2 : 1);
    first_.push_back(device);
    plan_.placement.emplace_back();
    for (std::uint32_t r = 0; r < count; ++r) {
      plan_.placement[k].push_back(ir::DeviceId(static_cast<std::uint16_t>(device)));
      plan_.devices[device++].reserve(passes / count + 2 + steps);
    }
  }
}

PlanBuilder::PlanBuilder(std::uint32_t stages,
                         std::uint32_t micro_batches,
                         std::uint32_t mini_batches)
    : PlanBuilder(PlanRequest{.stages = stages,
                              .micro_batches = micro_batches,
                              .mini_batches = mini_batches,
                              .options = {}}) {}

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
  const std::size_t count = plan_.placement[stage].size();
  const std::size_t replica = count == 1 ? 0 : index % count;
  plan_.devices[first_[stage] + replica].push_back(
      {kind, ir::StageId(static_cast<std::uint16_t>(stage)), index, weights});
}

void PlanBuilder::add_to_all(const ir::ComputeOp& op) {
  const std::size_t first = first_[ir::index_of(op.stage)];
  const std::size_t count = plan_.placement[ir::index_of(op.stage)].size();
  for (std::size_t d = first; d < first + count; ++d) {
    plan_.devices[d].push_back(op);
  }
}

void PlanBuilder::predict(std::uint32_t stage, const ir::WantedWeights& copy) {
  if (plan_.placement[stage].size() > 1 && copy.distance > 0) {
    add_to_all({ir::OpKind::Predict, ir::StageId(static_cast<std::uint16_t>(stage)),
                ir::index_of(copy.copy_mini_batch), copy});
  }
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
  const auto id = static_cast<ir::StageId>(stage);
  if (plan_.placement[stage].size() > 1) {
    add_to_all({ir::OpKind::AllReduce, id, mini_batch, {}});
  }
  add_to_all({ir::OpKind::Step, id, mini_batch, newest(stage)});
  ++versions_[stage];
}

ir::ComputePlan PlanBuilder::take() && {
  return std::move(plan_);
}

}  // namespace xpipe::scheduler
