// A torch::nn::Sequential of the user's own as a model to train (examples/own_model).
#pragma once

#include <string>
#include <vector>

#include <torch/torch.h>

#include "executor/torch/model.h"

namespace xpipe::executor::nn {

/// Every module of `net` is a layer, named by its name in `net`; takes one tensor and returns one.
/// Training starts from the weights and buffers that `net` has now; after Trainer::train() `net`
/// itself holds the trained ones. It must not be used by others while a trainer lives.
/// The factory checks each layer (executor/torch/layer_check.h) with samples of the data's shape.
/// Errors: Usage, naming the layer, for one whose backward does not follow the weights it is given,
/// that fails on its input, that shares a parameter with another, or whose weights are not float32;
/// and for a net that does not end in the data's classes.
/// `skips`: by the places of the modules in `net`, which does not know of them; in C++ only, as an
/// archive of an nn.Sequential could not keep them.
[[nodiscard]] ModelFactory own_model(torch::nn::Sequential net,
                                     std::string name = "own",
                                     std::vector<Skip> skips = {});

}  // namespace xpipe::executor::nn
