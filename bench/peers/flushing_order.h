// 1F1B with a flush (DAPPLE, PPoPP'21; PipeDream-Flush, ICML'21): the order in which a peer of ours
// trains, as a policy of the benchmark's own. Synchronous, as GPipe; early backwards keep fewer
// micro-batches in flight.
//
//   D = 2, T = 4   stage 0:  F0 F1 B0 F2 B1 F3 B2 .  B3 | F4      warm-up D - k forwards, then in
//                  stage 1:     F0 B0 F1 B1 F2 B2 F3 B3 |         turn, one step at the end
#pragma once

#include "scheduler/policy.h"

namespace xpipe::bench {

/// Named "1f1b". Without replicas.
[[nodiscard]] scheduler::Policy one_f_one_b_flush();

}  // namespace xpipe::bench
