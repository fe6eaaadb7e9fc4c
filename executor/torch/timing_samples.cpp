#include "executor/torch/timing_samples.h"

#include <algorithm>

#include "ir/status.h"

namespace xpipe::executor::nn {

TimingSummary summarize(const std::vector<ir::Nanos>& samples) {
  XPIPE_CHECK(!samples.empty()) << "no samples";
  std::vector<ir::Nanos> sorted = samples;
  std::ranges::sort(sorted);
  const std::size_t last = sorted.size() - 1;
  TimingSummary summary;
  const ir::Nanos lower = sorted[last / 2];
  const ir::Nanos upper = sorted[sorted.size() / 2];
  summary.median = lower + (upper - lower + 1) / 2;
  if (summary.median > 0) {
    const ir::Nanos quartiles = sorted[last - last / 4] - sorted[last / 4];
    summary.spread = static_cast<double>(quartiles) / static_cast<double>(summary.median);
  }
  summary.first_is_off = samples.front() / 2 > summary.median;
  return summary;
}

}  // namespace xpipe::executor::nn
