// Tensors by name: how a stage's state is told to files.
#pragma once

#include <map>
#include <string>

#include <torch/torch.h>

namespace xpipe::executor::nn {

/// Handles, not copies, unless it says otherwise.
using NamedTensors = std::map<std::string, torch::Tensor>;

}  // namespace xpipe::executor::nn
