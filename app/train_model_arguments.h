// The options of `xpipe train` that say which model is trained and where it goes.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "ir/status.h"

namespace xpipe::app {

/// As typed.
struct TrainModelArguments {
  std::string save;  ///< of --save-model
};

/// `model`: the configuration's.
void add_train_model_options(CLI::App& command, std::string& model, TrainModelArguments& arguments);

/// Errors: Usage for a model that is neither built in nor a file, and for --save-model where the
/// model is built in or cannot be written there.
[[nodiscard]] ir::Status check_model(const std::string& model,
                                     const TrainModelArguments& arguments);

}  // namespace xpipe::app
