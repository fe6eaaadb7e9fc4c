// What is made of repeated timings of one thing. No torch.
#pragma once

#include <vector>

#include "ir/ids.h"

namespace xpipe::executor::nn {

struct TimingSummary {
  ir::Nanos median = 0;  ///< of an even number the mean of the two in the middle, half up
  double spread = 0.0;   ///< between the quartiles, over the median; 0 where that is 0
  /// The first sample is more than twice the median: start-up was timed, and belongs to a warm-up.
  bool first_is_off = false;
};

/// Requires: at least one, none negative.
[[nodiscard]] TimingSummary summarize(const std::vector<ir::Nanos>& samples);

}  // namespace xpipe::executor::nn
