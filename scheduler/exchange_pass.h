// What stages or replicas do together before a step: all-reduces (from the policy, by the plan
// builder), sums of the gradients of tied weights, and clips by the norm over all stages.
//
//   before   .. 0B1 0STEP0          .. 1B1 1STEP0
//   after    .. 0B1 0CLIP0 0STEP0   .. 1B1 1CLIP0 1STEP0
//                 \________________________/      each clip waits for what stands before the
//                 /~~~~~~~~~~~~~~~~~~~~~~~~\      other ones, so that none starts before all can
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ir/compute_plan.h"
#include "ir/ids.h"
#include "ir/schedule.h"
#include "scheduler/stage_graph.h"

namespace xpipe::scheduler {

/// The schedule option that carries the largest norm; absent where nothing is clipped.
inline constexpr std::string_view kClipNormOption = "clip-norm";

/// Puts a sum for each tie of a stage before each of its steps, and a clip behind those if `clips`.
/// Requires: each stage and replica on a device of its own, as policies write plans.
void add_exchanges(const StageGraph& graph, bool clips, ir::ComputePlan& plan);

[[nodiscard]] bool is_exchange(ir::OpKind kind);

/// Whether `stage` takes part in the exchange `op`.
[[nodiscard]] bool takes_part(const ir::ComputeOp& op, ir::StageId stage);

/// Whether the two are parts of one exchange.
[[nodiscard]] bool is_same_exchange(const ir::ComputeOp& a, const ir::ComputeOp& b);

/// One part of an exchange: a task, and what stands before the exchange in its lane. When `behind`
/// is done, so is all that this part brings.
struct ExchangePart {
  ir::TaskId task{};
  std::optional<ir::TaskId> behind;
};

/// The parts of all exchanges, together those of one.
[[nodiscard]] std::vector<std::vector<ExchangePart>> exchange_parts(const ir::Schedule& schedule);

/// Adds the edges by which the parts of each exchange wait for each other, unsorted, some twice.
/// Returns whether there are any exchanges.
bool join_exchanges(ir::Schedule& schedule);

}  // namespace xpipe::scheduler
