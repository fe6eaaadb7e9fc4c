// What the simulator's tests share: schedules of real policies, and a second replay that knows
// neither events nor queues.
#pragma once

#include <cstdint>
#include <string>

#include "ir/schedule.h"
#include "ir/timeline.h"
#include "scheduler/cost_model.h"
#include "scheduler/policy.h"
#include "scheduler/stage_graph.h"

namespace xpipe::tests {

inline constexpr ir::Nanos kMicro = 1'000;
inline constexpr ir::Nanos kMilli = 1'000'000;

struct Sizes {
  std::uint32_t stages = 4;
  std::uint32_t micro_batches = 1;
  std::uint32_t mini_batches = 8;
};

/// The registered policy, compiled. Fails the test when it cannot be.
ir::Schedule schedule_of(const std::string& policy,
                         const Sizes& sizes,
                         const scheduler::Options& options = {});
ir::Schedule schedule_of(const std::string& policy,
                         const Sizes& sizes,
                         const scheduler::StageGraph& graph,
                         const scheduler::Options& options = {});

/// Equal stages, free links.
scheduler::CostModel equal_stages(std::uint32_t stages, ir::Nanos forward, ir::Nanos backward);

/// Stages of the given forward and backward times, free links.
scheduler::CostModel uneven_stages(const std::vector<ir::Nanos>& forward,
                                   const std::vector<ir::Nanos>& backward);

/// The span of a task by its text up to the bracket: "1F0".
ir::Span span_of(const ir::Schedule& schedule, const ir::Timeline& timeline, const char* name);

/// The oracle: start = the largest end (+ latency) of what comes before, applied to all tasks until
/// nothing moves. Full-duplex links only; costs worked out here, not by the cost model's code.
ir::Timeline naive_replay(const ir::Schedule& schedule, const scheduler::CostModel& costs);

}  // namespace xpipe::tests
