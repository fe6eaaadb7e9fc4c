#include "app/train_model_arguments.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "app/arguments.h"
#include <fmt/format.h>

#include "executor/torch/model_names.h"
#include "ir/files.h"
#include "scheduler/policy.h"

namespace xpipe::app {

namespace {

namespace nn = executor::nn;

}  // namespace

void add_train_model_options(CLI::App& command,
                             std::string& model,
                             TrainModelArguments& arguments) {
  text(
      command, "--model", model, "NAME|FILE",
      fmt::format("a built-in model ({}), or TorchScript archives: a .pt file of an nn.Sequential, "
                  "or a folder or comma-separated list of them, one a stage",
                  fmt::join(nn::model_names(), ", ")));
  text(command, "--save-model", arguments.save, "FILE",
       "of a model that came from archives: write it back with the trained weights");
}

ir::Status check_model(const std::string& model, const TrainModelArguments& arguments) {
  const std::vector<std::string> names = nn::model_names();
  const bool is_file = nn::is_model_file(model);
  if (!is_file && std::ranges::find(names, model) == names.end()) {
    const std::optional<std::string> nearest = scheduler::nearest_name(model, names);
    return usage("--model",
                 fmt::format("found '{}', expected one of {}, or a .pt file{}", model,
                             fmt::join(names, ", "),
                             nearest ? fmt::format(" (did you mean {}?)", *nearest) : ""));
  }
  if (arguments.save.empty()) {
    return {};
  }
  if (!is_file) {
    return usage("--save-model",
                 fmt::format("is for models that come from a file, and {} is built in", model));
  }
  const std::filesystem::path target(arguments.save);
  std::error_code ignored;
  if (std::filesystem::is_directory(target, ignored)) {
    return ir::check_writable((target / "model.pt").string());
  }
  return ir::check_writable(arguments.save);
}

}  // namespace xpipe::app
