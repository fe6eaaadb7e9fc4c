// PipeDream (Narayanan et al., SOSP'19; arXiv 1806.03377): whole mini-batches, 1F1B without a
// flush, a step after every backward. Weight stashing: a backward reads the version that its own
// forward read, so that stage k works D - 1 - k updates behind, with D - k versions stored.
//
//   D = 3     stage 0:  F0 F1 F2 .  .  B0|F3 B1|F4 ...    F3 reads version 1, and so does B3
//             stage 1:     F0 F1 .  B0|F2 B1|F3 ...       F2 reads version 1
//             stage 2:        F0 B0|F1 B1|F2 ...          F2 reads version 2      | is a step
//
// Replicas (1F1B-RR): mini-batch j runs on replica j mod r, forward and backward; a replicated
// stage averages the gradients of r mini-batches and steps once for them.
//
//   2,1       device 0: F0 F2 .  B0 .. |F4 B2 ..   stage 0: mini-batches 0, 2, 4, ...
//             device 1: F1 .. .. .. B1 |F3 B3 ..            1, 3, 5, ...    | all-reduce and step
//             device 2: .  F0 B0|F1 B1|F2 B2|...   stage 1: all of them
//
// vertical-sync=true: every stage reads the version that the input stage read for that mini-batch,
// D - 1 updates behind on all stages.
#pragma once

#include "scheduler/policy.h"

namespace xpipe::policies {

[[nodiscard]] scheduler::Policy pipedream();

}  // namespace xpipe::policies
