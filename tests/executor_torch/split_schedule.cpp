#include "tests/executor_torch/split_schedule.h"

#include <utility>
#include <vector>

#include "ir/validate.h"
#include "policies/register_all.h"
#include "tests/executor_torch/torch_doctest.h"

namespace xpipe::tests {

ir::Schedule with_split_backwards(const std::string& policy,
                                  std::uint32_t stages,
                                  std::uint32_t micro_batches,
                                  std::uint32_t mini_batches,
                                  WeightPart when,
                                  scheduler::Recompute recompute,
                                  const scheduler::StageGraph* graph) {
  scheduler::PolicyRegistry registry;
  policies::register_all(registry);
  const scheduler::Policy& found = *registry.find(policy).value();
  scheduler::Options options = scheduler::resolve_options(found, {}).value();
  ir::ComputePlan plan = found
                             .plan({.stages = stages,
                                    .micro_batches = found.whole_mini_batch ? 1 : micro_batches,
                                    .mini_batches = mini_batches,
                                    .options = options})
                             .value();
  for (std::vector<ir::ComputeOp>& order : plan.devices) {
    std::vector<ir::ComputeOp> split;
    std::vector<ir::ComputeOp> late;
    for (ir::ComputeOp op : order) {
      if (op.kind == ir::OpKind::Backward) {
        op.kind = ir::OpKind::BackwardWeight;
        late.push_back(op);
        op.kind = ir::OpKind::BackwardInput;
        split.push_back(op);
      }
      if (when == WeightPart::AtOnce || op.kind == ir::OpKind::Step) {
        split.insert(split.end(), late.begin(), late.end());
        late.clear();
      }
      if (op.kind != ir::OpKind::BackwardInput) {
        split.push_back(op);
      }
    }
    order = std::move(split);
  }
  if (recompute != scheduler::Recompute::None) {
    scheduler::add_recomputes(recompute, plan);
    options.emplace(scheduler::kRecomputeOption, scheduler::recompute_name(recompute));
  }
  ir::Result<ir::Schedule> schedule = scheduler::compile_plan(
      plan, graph != nullptr ? *graph : scheduler::chain_of(stages), found.name, options);
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  REQUIRE(ir::check_legal(schedule.value()).ok());
  return std::move(schedule.value());
}

}  // namespace xpipe::tests
