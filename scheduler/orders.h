// Orders that several policies share, and what follows from them. One forward, one backward (1F1B)
// without a flush, over all micro-batches of a segment (XPipe's figure; PipeDream, SOSP'19, 3.2):
//
//   D = 3     stage 0:  F0 F1 F2 B0 F3 B1 F4 B2 ...     warm-up D - k forwards, then a backward
//             stage 1:     F0 F1 B0 F2 B1 F3 ...        and a forward in turn, at the end only
//             stage 2:        F0 B0 F1 B1 ...           backwards
//
// With replicas, `stages` and `stage` are PlanRequest::depth() and place(): stage k admits as many
// micro-batches as there are replicas from it on (PipeDream's NOAM), ceil of that over r on each of
// its own r, which take them in turn (1F1B-RR).
//
// Pure functions; thread-safe. Stages, micro-batches and mini-batches count from 0.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/ids.h"
#include "ir/task.h"
#include "scheduler/policy.h"

namespace xpipe::scheduler {

/// One pass of one micro-batch.
struct PassOf {
  ir::Pass pass = ir::Pass::Forward;
  std::uint32_t micro_batch = 0;

  bool operator==(const PassOf&) const = default;
};

/// Forwards of `stage` before its first backward, and so its micro-batches in flight at most:
/// D - k, or all there are in a stream shorter than that (field case D2).
[[nodiscard]] std::uint32_t one_f_one_b_warm_up(std::uint32_t stages,
                                                std::uint32_t stage,
                                                std::uint32_t micro_batches);

/// The order of `stage` over `micro_batches`, those of all mini-batches together.
[[nodiscard]] std::vector<PassOf> one_f_one_b(std::uint32_t stages,
                                              std::uint32_t stage,
                                              std::uint32_t micro_batches);

/// In that order with a step at every `per_step`-th backward: how many updates sequential training
/// would have made on `stage` before a forward, that are still missing there, at most:
/// ceil((D - 1 - k) / per_step), or as many as there are when the segment is shorter than that
/// (methods.md 1.3, "local").
[[nodiscard]] std::uint32_t one_f_one_b_staleness(const PlanRequest& request,
                                                  std::uint32_t stage,
                                                  std::uint32_t per_step);

/// The same with a step at the last backward of each mini-batch.
[[nodiscard]] std::uint32_t one_f_one_b_staleness(const PlanRequest& request, std::uint32_t stage);

/// Micro-batches in flight at most on each replica of `stage`, of those that the stage admits.
[[nodiscard]] std::uint32_t in_flight_on_replica(const PlanRequest& request,
                                                 std::uint32_t stage,
                                                 std::uint32_t admitted);

/// A prediction's distance for the forward of `mini_batch`: at the start of a segment fewer updates
/// are missing than in steady state, min(steady, mini_batch + backward) with `backward` the
/// distance at the backward (design.md §5, Segments).
[[nodiscard]] ir::Distance distance_from_start(ir::Distance steady,
                                               ir::Distance backward,
                                               std::uint32_t mini_batch);

/// No stage reads stale or predicted weights.
[[nodiscard]] bool reads_as_sequential(const std::vector<StagePromise>& stages);

}  // namespace xpipe::scheduler
