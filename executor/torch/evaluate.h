// What a model is worth between segments: loss and accuracy on its master weights.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/torch/dataset.h"
#include "executor/torch/stage.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

struct Evaluation {
  double loss = 0.0;  ///< mean cross-entropy
  double accuracy = 0.0;
};

/// Over all of `samples`, in order, 250 at a time, in the calling thread. Requires: drained stages.
/// Errors: Runtime with what LibTorch says.
[[nodiscard]] ir::Result<Evaluation> evaluate(const std::vector<Stage*>& stages,
                                              const Samples& samples);

/// FNV-1a over the bytes of all master weights, in order.
[[nodiscard]] std::uint64_t weights_hash(const std::vector<Stage*>& stages);

}  // namespace xpipe::executor::nn
