// Schedules whose backwards come in two parts, which no policy of this house writes yet.
#pragma once

#include <cstdint>
#include <string>

#include "ir/schedule.h"
#include "scheduler/compile.h"
#include "scheduler/recompute_pass.h"
#include "scheduler/stage_graph.h"

namespace xpipe::tests {

/// When the weight part of a split backward runs.
enum class WeightPart : std::uint8_t { AtOnce, BeforeTheStep };

/// `policy`'s plan with every backward in two parts. `graph`: what the stages exchange; null: each
/// with the next. Fails the test where it is not legal.
[[nodiscard]] ir::Schedule with_split_backwards(
    const std::string& policy,
    std::uint32_t stages,
    std::uint32_t micro_batches,
    std::uint32_t mini_batches,
    WeightPart when,
    scheduler::Recompute recompute = scheduler::Recompute::None,
    const scheduler::StageGraph* graph = nullptr);

}  // namespace xpipe::tests
