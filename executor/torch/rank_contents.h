// What ranks compare beside their settings: whether the samples that they have read and the model
// that they have made are the same, by content. Names and numbers of samples would not tell a file
// that was written anew on one machine only.
#pragma once

#include <string>

#include "executor/torch/model.h"
#include "executor/torch/sample_source.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

/// A hash of all labels (of a text these are all its tokens) and of the inputs of at most 64
/// samples, evenly spread: files are decoded for it. Errors: the source's.
[[nodiscard]] ir::Result<std::string> samples_fingerprint(const SampleSource& samples);

/// A hash of all parameters and buffers, bit for bit.
[[nodiscard]] std::string model_fingerprint(const Model& model);

}  // namespace xpipe::executor::nn
