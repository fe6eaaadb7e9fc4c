// The losses that a training can have (executor/torch/train_recipe.h), each a mean over a batch's
// predictions: samples, or the tokens of each. Never computed in a narrow type.
#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "executor/torch/train_recipe.h"

namespace xpipe::executor::nn {

/// A scalar, with its graph where `output` has one.
///   cross-entropy  outputs [samples, classes], labels [samples]; of text [samples, sequence,
///                  classes] and [samples, sequence]
///   mse            the mean square of output - target over all numbers. The target is the label
///                  itself where labels are floating-point, of the output's size; of classes it is
///                  1 at the right one and 0 elsewhere.
[[nodiscard]] torch::Tensor mean_loss(LossKind kind,
                                      const torch::Tensor& output,
                                      const torch::Tensor& labels);

/// Predictions that were right, a scalar; 0 where labels are not classes.
[[nodiscard]] torch::Tensor correct_predictions(const torch::Tensor& output,
                                                const torch::Tensor& labels);

}  // namespace xpipe::executor::nn
