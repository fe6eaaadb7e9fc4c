#include "scheduler/recompute_pass.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ir/status.h"

namespace xpipe::scheduler {

namespace {

bool needs_activations(const ir::ComputeOp& op) {
  return op.kind == ir::OpKind::Backward || op.kind == ir::OpKind::BackwardInput;
}

}  // namespace

std::string_view recompute_name(Recompute mode) {
  switch (mode) {
    case Recompute::None:
      return "none";
    case Recompute::Stage:
      return "stage";
    case Recompute::Layer:
      return "layer";
  }
  XPIPE_CHECK(false) << "recompute " << static_cast<int>(mode) << " does not exist";
  return "";
}

void add_recomputes(Recompute mode, ir::ComputePlan& plan) {
  if (mode == Recompute::None) {
    return;
  }
  for (std::vector<ir::ComputeOp>& order : plan.devices) {
    std::vector<ir::ComputeOp> longer;
    longer.reserve(order.size() + static_cast<std::size_t>(std::count_if(order.begin(), order.end(),
                                                                         needs_activations)));
    for (const ir::ComputeOp& op : order) {
      if (needs_activations(op)) {
        longer.push_back({ir::OpKind::Recompute, op.stage, op.index, op.weights});
      }
      longer.push_back(op);
    }
    order = std::move(longer);
  }
}

}  // namespace xpipe::scheduler
