// The built-in models by name, for who offers them. No torch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xpipe::executor::nn {

/// "mlp", "lenet5", "vgg16", "resnet50", ..., as listed to people.
[[nodiscard]] std::vector<std::string> model_names();

/// The names of a model's own sizes: `mlp` has hidden and depth. Empty for a model that has none,
/// and for a name that is none.
[[nodiscard]] std::vector<std::string> model_option_names(std::string_view model);

/// `model` names TorchScript archives (script_model.h) and no built-in model: it ends in .pt, or
/// has a '/' or a ',' in it.
[[nodiscard]] bool is_model_file(std::string_view model);

}  // namespace xpipe::executor::nn
