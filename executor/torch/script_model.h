// A user's own model from TorchScript archives: what `torch.jit.save(torch.jit.script(model),
// file)` wrote. Where the model is an nn.Sequential, its children are the layers, in order.
//
//   model.pt               nn.Sequential(a, b, c)      layers a, b, c: cut anywhere
//   s0.pt,s1.pt or a folder of .pt files, by name      one archive a stage: cut between them
//
// Each layer is checked at load: forward and backward on different weights through the saved-tensor
// hooks against the in-place method (executor/torch/layer_check.h). A layer that draws random
// numbers (dropout) is run with LibTorch's generator seeded by (seed, segment, micro-batch, layer),
// one such layer at a time in the process.
#pragma once

#include <cstdint>
#include <string>

#include "executor/torch/model.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

/// The model in `path`: an archive, several with commas between, or a folder of them. `input` and
/// `classes` are the data's. What save_model() of the result writes is what was read, with the
/// weights of then.
/// Errors: BadInput for what cannot be read, naming the file; Usage for a model that the data do
/// not fit or that cannot be trained, naming the layer.
[[nodiscard]] ir::Result<Model> load_script_model(const std::string& path,
                                                  const SampleShape& input,
                                                  std::int64_t classes);

/// Makes the archives of `model` hold what its modules hold and writes them: to the file `path`,
/// or, of several archives, to the folder `path` under the names they were read from. Written
/// beside and renamed. Errors: Runtime for the disk; Usage for a model that is not from an archive.
[[nodiscard]] ir::Status save_script_model(const Model& model, const std::string& path);

}  // namespace xpipe::executor::nn
