// Does a layer compute its backward with the weights that the backward names? Checked once, when a
// user's model is loaded (design.md section 7): what a layer does inside is unknown, and a mixture
// of two versions is silent.
//
//   forward on A, backward on B through the hooks   =?   the same, B written in place of A
#pragma once

#include <cstdint>
#include <string>

#include <torch/torch.h>

#include "executor/torch/model.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

/// Checks `layer` with `input`, several times over (TorchScript rewrites its code in the first
/// calls). Leaves the layer's numbers changed: give it a copy. `is_first`: nobody asks for the
/// gradient of its input. Errors: Usage "layer-unsuited", naming the layer and what went wrong.
[[nodiscard]] ir::Status check_layer(const Layer& layer, const torch::Tensor& input, bool is_first);

/// Usage "layer-unsuited" at `layer`: that it cannot be trained as it is.
[[nodiscard]] ir::Error unsuited(const std::string& layer, std::string what);

/// Two random samples of what the data hold.
[[nodiscard]] torch::Tensor trial_input(const SampleShape& input, std::int64_t classes);

/// Fills in what `output`, that of two samples, tells of `layer`: its size, and as multiply-adds
/// its parameters times the places that they are used at, enough for a cut by arithmetic.
void describe(Layer& layer, const torch::Tensor& output);

}  // namespace xpipe::executor::nn
