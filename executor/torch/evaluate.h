// What a model is worth between segments: loss and accuracy on its master weights.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/torch/sample_source.h"
#include "executor/torch/stage.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

struct Evaluation {
  double loss = 0.0;  ///< mean cross-entropy, over samples and the tokens of each
  double accuracy = 0.0;
};

/// Over all of `samples`, in order, 250 at a time, in the calling thread. Of text, over all tokens.
/// Requires: drained stages. Errors: Runtime with what LibTorch says; the source's.
[[nodiscard]] ir::Result<Evaluation> evaluate(const std::vector<Stage*>& stages,
                                              const SampleSource& samples);

/// FNV-1a over the bytes of all master weights, in order.
[[nodiscard]] std::uint64_t weights_hash(const std::vector<Stage*>& stages);

}  // namespace xpipe::executor::nn
