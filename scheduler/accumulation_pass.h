// Steps for several mini-batches, whose gradients are accumulated:
//
//   k = 1   0F0[v0] 0B0[v0] 0STEP0[v0]  0F1[v1] 0B1[v1] 0STEP1[v1]
//   k = 2   0F0[v0] 0B0[v0]             0F1[v0] 0B1[v0] 0STEP1[v0]
//
// The last step of a segment takes what is left. For plans that read weights as sequential training
// does, where version v is that of mini-batch v.
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/compute_plan.h"

namespace xpipe::scheduler {

/// The schedule option that carries k; absent where it is 1.
inline constexpr std::string_view kAccumulateOption = "accumulate";

/// Leaves out all steps and all-reduces but those of every `count`-th mini-batch and of the last
/// one. Requires: a plan of a policy that equals sequential training; count > 0.
void accumulate_steps(std::uint32_t count, ir::ComputePlan& plan);

}  // namespace xpipe::scheduler
