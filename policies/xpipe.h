// XPipe (Guan, Yin, Li, Lu; arXiv 1911.04610): asynchronous micro-batches with predicted weights.
// 1F1B at micro-batch granularity that runs on across mini-batches without a flush; each stage
// steps at the last backward of a mini-batch. The bellwether, a mini-batch's first micro-batch,
// predicts the weights before its forward and again before its backward; the others of the
// mini-batch read its copies, also when the master has been stepped in between.
//
//   D = 2, T = 2   stage 0:  F0 F1 .  B0 F2 B1|F3 B2 F4 B3|F5 ...     | is a step
//                  stage 1:     F0 B0 F1 B1|F2 B2 F3 B3|F4 ...
//
// Replicas: micro-batch j runs on replica j mod r. A stage with replicas stands in a pipeline that
// is as deep as there are replicas of all stages, and the distances count so; each replica makes
// the bellwether's copy at the bellwether's place in the stage's order.
//
// Options: version-difference and rounding choose the distances (policies/version_difference.h);
// predict=none is PACI (arXiv 2606.07881), every pass on the newest weights; predict=forward is
// PipeOptim with micro-batches; bias is how the executor corrects the moments (methods.md 1.4).
#pragma once

#include "scheduler/policy.h"

namespace xpipe::policies {

[[nodiscard]] scheduler::Policy xpipe();

}  // namespace xpipe::policies
