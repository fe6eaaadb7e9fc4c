// The options of `xpipe train` that say how it steps: the last mini-batch of an epoch.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "executor/torch/train_recipe.h"

namespace xpipe::app {

/// As typed.
struct RecipeArguments {
  std::string last_batch = "keep";
};

void add_recipe_options(CLI::App& command, RecipeArguments& arguments);

[[nodiscard]] executor::nn::Recipe recipe_of(const RecipeArguments& arguments);

}  // namespace xpipe::app
