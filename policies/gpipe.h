// GPipe (Huang et al., NeurIPS'19): synchronous micro-batches. Every mini-batch runs all its
// forwards, then all its backwards, then steps; the pipeline drains in between.
//
//   D = 3, T = 2   stage 0:  F0 F1 .  .  .  .  B0 B1 | F2 ...     backwards in ascending order, so
//                  stage 1:     F0 F1 .  .  B0 B1    |            that accumulated gradients equal
//                  stage 2:        F0 F1 B0 B1       |            the sequential ones bit for bit
//
// Replicas: micro-batch j runs on replica j mod r, so that r replicas of every stage are plain data
// and pipeline parallelism.
#pragma once

#include "scheduler/policy.h"

namespace xpipe::policies {

[[nodiscard]] scheduler::Policy gpipe();

}  // namespace xpipe::policies
