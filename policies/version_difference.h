// XPipe's version difference s: how many optimizer steps ahead the weights for a pass are predicted
// (XPipe, arXiv 1911.04610; methods.md 1.3). Pure functions in exact integer arithmetic.
//
//   paper    forward  round((D + T - k/2 - 2) / T)         backward  round((T + floor(k/2) - 1) /
//   T) horizon  forward  ceil((D-1-k) / T) + ceil(k / 2T)     backward  ceil(k / 2T) local forward
//   ceil((D-1-k) / T)                    backward  0
//
// `paper` is the published formula; its rounding is not known, so that it is a switch. `horizon`
// counts the updates on this stage until the mini-batch is through on stage 0, the formula's
// definition taken literally; `local` counts those that sequential training would have made before.
#pragma once

#include <cstdint>

#include "ir/ids.h"

namespace xpipe::policies {

enum class VersionDifference : std::uint8_t { Paper, Horizon, Local };

enum class Rounding : std::uint8_t {
  Floor,
  HalfEven,  ///< to the nearest, ties to the even neighbour
  HalfUp,    ///< to the nearest, ties up
};

struct Distances {
  ir::Distance forward = 0;
  ir::Distance backward = 0;

  bool operator==(const Distances&) const = default;
};

/// Steady state, for the bellwether (the first micro-batch of a mini-batch) on `stage`; rounding
/// matters to `Paper` only. Requires: stage < stages <= 65536, micro_batches >= 1.
[[nodiscard]] Distances version_difference(VersionDifference mode,
                                           Rounding rounding,
                                           std::uint32_t stages,
                                           std::uint32_t micro_batches,
                                           std::uint32_t stage);

}  // namespace xpipe::policies
