// PipeDream (Narayanan et al., SOSP'19; arXiv 1806.03377): whole mini-batches, 1F1B without a
// flush, a step after every backward. Weight stashing: a backward reads the version that its own
// forward read, so that stage k works D - 1 - k updates behind, with D - k versions stored.
//
//   D = 3     stage 0:  F0 F1 F2 .  .  B0|F3 B1|F4 ...    F3 reads version 1, and so does B3
//             stage 1:     F0 F1 .  B0|F2 B1|F3 ...       F2 reads version 1
//             stage 2:        F0 B0|F1 B1|F2 ...          F2 reads version 2      | is a step
//
// vertical-sync=true: every stage reads the version that the input stage read for that mini-batch,
// D - 1 updates behind on all stages.
#pragma once

#include "scheduler/policy.h"

namespace xpipe::policies {

[[nodiscard]] scheduler::Policy pipedream();

}  // namespace xpipe::policies
