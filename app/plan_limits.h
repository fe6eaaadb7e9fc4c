// Why a plan is as fast as it is: the busiest device or link of its simulation, or the waiting; and
// how far it is from devices that all compute all the time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/plan_search.h"

#include "ir/ids.h"

namespace xpipe::app {

enum class LimitKind : std::uint8_t {
  Compute,   ///< a device is busy nearly all the time
  Transfer,  ///< a link, or what several links share, is
  Waiting,   ///< none is: drains and the start of the pipeline, or messages on their way
};

/// "compute", "transfer", "waiting".
[[nodiscard]] std::string limit_name(LimitKind kind);

struct PlanLimit {
  LimitKind kind = LimitKind::Waiting;
  std::string text;         ///< a sentence for people
  double busy_share = 0.0;  ///< of a mini-batch's time, of the busiest device or link
  /// Samples/s if the plan's devices computed all the time, each at its speed.
  std::optional<double> ideal_samples_per_s;
};

[[nodiscard]] PlanLimit limit_of(const Candidate& plan);

/// What a stage hands to later ones, per micro-batch: the bytes, and the time on the slowest of its
/// links, the slower direction of it.
struct StageTransfer {
  ir::Bytes bytes = 0;
  ir::Nanos time = 0;
};

/// By stage.
[[nodiscard]] std::vector<StageTransfer> transfers_of(const Candidate& plan);

/// Forward and backward of one micro-batch, recompute and launches included. By stage, on its first
/// device.
[[nodiscard]] std::vector<ir::Nanos> stage_times(const Candidate& plan);

/// The slowest stage or transfer of one micro-batch; replicas share a stage's time.
[[nodiscard]] ir::Nanos bottleneck_of(const Candidate& plan);

}  // namespace xpipe::app
