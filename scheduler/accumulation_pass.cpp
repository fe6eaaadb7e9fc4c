#include "scheduler/accumulation_pass.h"

#include <vector>

namespace xpipe::scheduler {

void accumulate_steps(std::uint32_t count, ir::ComputePlan& plan) {
  const auto is_left_out = [&](const ir::ComputeOp& op) {
    const bool of_step = op.kind == ir::OpKind::Step || op.kind == ir::OpKind::AllReduce;
    return of_step && (op.index + 1) % count != 0 && op.index + 1 != plan.mini_batches;
  };
  for (std::vector<ir::ComputeOp>& order : plan.devices) {
    std::erase_if(order, is_left_out);
    for (ir::ComputeOp& op : order) {
      op.weights.version /= count;
    }
  }
}

}  // namespace xpipe::scheduler
