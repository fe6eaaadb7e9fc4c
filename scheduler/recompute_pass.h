// The recompute pass: a stage that does not keep its activations runs its forward again before each
// backward, on the weights that the backward reads.
//
//   none    F0 F1 ........ B0 B1        all activations are kept from forward to backward
//   stage   F0 F1 ..... R0 B0 R1 B1     the stage's input is kept; the rest is made again
//   layer   the same tasks              each layer's input is kept; layer by layer
//
// What is kept, and for how long, is the cost model's business (scheduler/stage_costs.h); the
// schedule carries the mode as its option "recompute".
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/compute_plan.h"

namespace xpipe::scheduler {

enum class Recompute : std::uint8_t { None, Stage, Layer };

/// "none", "stage", "layer".
[[nodiscard]] std::string_view recompute_name(Recompute mode);

/// The schedule option that carries the mode; absent where it is None.
inline constexpr std::string_view kRecomputeOption = "recompute";

/// Puts a Recompute before each Backward and BackwardInput of `plan`; nothing with None.
void add_recomputes(Recompute mode, ir::ComputePlan& plan);

}  // namespace xpipe::scheduler
