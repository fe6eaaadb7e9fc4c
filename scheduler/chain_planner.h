// Cuts a network into D stages, one device each, in the order of the devices, so that the slowest
// stage or transfer is as fast as possible and every stage fits its device's memory. Exact: over
// all contiguous cuts of the layers in their stated order, or over all chains of antichains.
//
//   stage k       time of its layers / speed + launches + steps and predictions by bytes touched
//   boundary      each tensor that crosses it, once, over the link to the next device; both ways,
//                 half duplex one after the other. A tensor that skips a stage counts on every
//                 boundary that it crosses, though it goes by a link of its own
//   memory        the policy's promises: versions held, micro-batches in flight; no buffers
//
// Among the cuts with the smallest bottleneck that is taken which scheduler/partition.h takes: the
// stages balanced in time, then in layers, then the earlier ones larger. On equal devices with free
// links and memory enough the two agree.
//
// Where the memory fits no cut, the cut is taken that is the least above the limits, and says so.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/ids.h"
#include "ir/profile.h"
#include "ir/status.h"
#include "scheduler/graph_compression.h"

namespace xpipe::scheduler {

/// A place to cut: sums over the layers before it, for the profile's samples.
struct CutPoint {
  std::uint32_t layers = 0;
  ir::Nanos time = 0;
  ir::Nanos forward = 0;  ///< of the time
  ir::Bytes saved_bytes = 0;
  ir::Bytes parameter_bytes = 0;
  ir::Bytes crossing_bytes = 0;  ///< outputs before it that are used behind it, each once
  ir::Bytes needed_bytes = 0;    ///< of those, what goes to the next stage wherever it ends
};

/// What one stage's device, the link behind it and the policy make of the layers that it is given
/// (scheduler/stage_terms.h). Times are for the profile's samples, too.
struct StageTerms {
  double slowness = 1.0;  ///< on the layers' time
  ir::Nanos overhead = 0;
  double ns_per_parameter_byte = 0.0;
  double ns_per_sent_byte = 0.0;  ///< to the next stage, or back if that takes longer
  double held_per_saved_byte = 0.0;
  double held_per_parameter_byte = 0.0;
  bool recomputes = false;  ///< the forward runs twice
  std::optional<ir::Bytes> memory_bytes;
};

struct ChainProblem {
  /// In a topological order: the first has no layers, the last all.
  std::vector<CutPoint> cuts;
  /// By cut: those that contain it, ascending. Empty where each contains all before it.
  std::vector<std::vector<std::uint32_t>> after;
  std::vector<StageTerms> stages;
};

struct ChainPlan {
  std::vector<std::uint32_t> ends;  ///< by stage: the cut behind it
  ir::Nanos bottleneck = 0;         ///< for the profile's samples
  bool is_transfer = false;         ///< the bottleneck is a transfer, no stage being as slow
  ir::Bytes shortfall = 0;          ///< of the device that is the most above its limit; 0: all fit
};

/// The layers in their stated order.
[[nodiscard]] std::vector<CutPoint> cuts_of_order(const ir::Profile& profile);

/// The antichains, in front of them nothing; with `after` for ChainProblem. Inputs belong to the
/// first stage.
struct AntichainCuts {
  std::vector<CutPoint> cuts;
  std::vector<std::vector<std::uint32_t>> after;
};

[[nodiscard]] AntichainCuts cuts_of_antichains(const Cuts& found, const ir::Profile& profile);

/// O(stages * cuts^2). Errors: Usage where there are more stages than layers (longest chain of
/// cuts), or none; or where times do not fit in 64 bits.
[[nodiscard]] ir::Result<ChainPlan> plan_chain(const ChainProblem& problem);

/// What a stage of the layers between two cuts takes, and holds by the policy's promises.
[[nodiscard]] ir::Nanos stage_time(const StageTerms& terms,
                                   const CutPoint& begin,
                                   const CutPoint& end);
[[nodiscard]] ir::Nanos transfer_time(const StageTerms& terms, const CutPoint& boundary);
[[nodiscard]] ir::Bytes held_bytes(const StageTerms& terms,
                                   const CutPoint& begin,
                                   const CutPoint& end);

}  // namespace xpipe::scheduler
