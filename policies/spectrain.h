// SpecTrain (Chen, Yang, Cheng; arXiv 1809.02839): whole mini-batches, 1F1B without a flush, and
// weights predicted along the smoothed gradient, W - s * rate * v.
//
//              forward's distance s        backward
//   variant 1  floor(k/2) + D - k - 1      predicts again, s = floor(k/2)      (the paper)
//   variant 2  D - k - 1                   reuses the forward's weights        (its repository)
//
// At the start of a segment s is smaller, as fewer updates are missing (design.md §5). v is SGD's
// momentum buffer where the optimizer has one, else a moving average with `gamma`:
// v = gamma * v + (1 - gamma) * g.
#pragma once

#include "scheduler/policy.h"

namespace xpipe::policies {

[[nodiscard]] scheduler::Policy spectrain();

}  // namespace xpipe::policies
