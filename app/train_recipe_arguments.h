// The options of `xpipe train` that say how it steps: learning rates over time, and the last
// mini-batch of an epoch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "executor/torch/learning_rate.h"
#include "executor/torch/train_recipe.h"
#include "ir/status.h"

namespace xpipe::app {

/// As typed.
struct RecipeArguments {
  std::string last_batch = "keep";
  std::string loss = "cross-entropy";
  std::string loss_reduction = "mean";
  std::string lr_schedule = "constant";
  std::optional<std::uint32_t> warm_up;
  std::optional<std::uint32_t> step_every;
  std::optional<double> gamma;
  std::optional<std::uint32_t> total_steps;
};

void add_recipe_options(CLI::App& command, RecipeArguments& arguments);

[[nodiscard]] executor::nn::Recipe recipe_of(const RecipeArguments& arguments);

/// Errors: Usage for options that the schedule asked for has no use for, or lacks.
[[nodiscard]] ir::Result<executor::nn::LearningRateSchedule> learning_rate_schedule_of(
    const RecipeArguments& arguments);

}  // namespace xpipe::app
