// From a run back to the next plan: a profile and a cluster whose predicted times are the medians
// of what the run measured.
//
//   run's spans ──► median per stage: forward, backward (or its parts), step     ──► layer times
//                   median per pair of devices: end of a receive less start of its send ──► latency
//
// A stage's time goes to its layers in proportion to what the profile says of them, to the
// nanosecond; bytes stay the profile's, scaled to the run's mini-batch. What tasks of other kinds
// cost (predictions, stashes, sums) is priced by the cluster's memory bandwidth, which a trace does
// not tell.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/cluster.h"
#include "ir/ids.h"
#include "ir/profile.h"
#include "ir/status.h"
#include "traces/timeline_file.h"

namespace xpipe::traces {

/// Medians over a stage's tasks, of all its replicas; absent: it has none of the kind.
struct StageMedians {
  std::optional<ir::Nanos> forward;
  std::optional<ir::Nanos> backward;  ///< whole
  std::optional<ir::Nanos> backward_input;
  std::optional<ir::Nanos> backward_weight;
  std::optional<ir::Nanos> step;

  bool operator==(const StageMedians&) const = default;
};

struct Calibration {
  ir::Profile profile;                ///< for `batch_size` samples: a mini-batch of the run
  ir::Cluster cluster;                ///< one device and link each that the run had
  std::vector<StageMedians> medians;  ///< by StageId
};

/// The median of an even number is the mean of the two in the middle, half up. Requires: one.
[[nodiscard]] ir::Nanos median(std::vector<ir::Nanos> times);

/// `batch_size`: samples of a mini-batch of the run. A step's time is that of the layers with
/// parameters; that of a stage without any is lost. Errors: Usage "not-a-run" for a plan's trace,
/// "other-layers" where the run's layers are not the profile's, by name and order, "recomputed" for
/// a run whose passes were recomputed, as a profile has no time for that; Illegal for a trace whose
/// schedule is not legal.
[[nodiscard]] ir::Result<Calibration> calibrate(const ir::Profile& profile,
                                                const TimelineFile& run,
                                                std::uint32_t batch_size);

}  // namespace xpipe::traces
