// The options of `xpipe train`, and the configuration that they make.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/passes_arguments.h"
#include "app/train_checkpoint_arguments.h"
#include "app/train_compute_arguments.h"
#include "app/train_data_arguments.h"
#include "app/train_model_arguments.h"
#include "app/train_recipe_arguments.h"
#include <CLI/CLI.hpp>

#include "executor/torch/train_config.h"
#include "ir/profile.h"
#include "ir/status.h"
#include "scheduler/policy.h"

namespace xpipe::app {

/// As typed.
struct TrainArguments {
  executor::nn::TrainConfig config;
  TrainDataArguments data;
  TrainModelArguments model;
  RecipeArguments recipe;
  ComputeArguments compute;
  CheckpointArguments checkpoint;
  std::string policy;
  std::string profile;
  std::string optimizer = "adam";
  std::optional<double> learning_rate;
  std::optional<double> momentum;
  std::optional<double> weight_decay;
  std::string device;  ///< empty: cuda with --transport nccl, else cpu
  std::string transport;
  std::uint32_t seed = 0;
  std::uint32_t timeout_s = 300;
  std::optional<std::uint32_t> trace_epoch;
  std::string prediction_error;
  std::vector<std::string> settings;
  PassesArguments passes;
  std::string trace;
  std::string metrics;
  bool json = false;
};

void add_train_options(CLI::App& command, TrainArguments& arguments);

/// What a run is asked for, as far as the command line and a profile decide it.
struct TrainRequest {
  const scheduler::Policy* policy = nullptr;
  scheduler::Options options;  ///< of the policy, as given
  scheduler::Passes passes;
  executor::nn::TrainConfig config;
  std::optional<ir::Profile> profile;
  bool pin_threads = true;
  bool saves_model = false;
};

/// Checks everything that can be checked before the data are read, outputs included. Errors: Usage;
/// BadInput for the profile.
[[nodiscard]] ir::Result<TrainRequest> train_request(const TrainArguments& arguments,
                                                     const scheduler::PolicyRegistry& registry);

}  // namespace xpipe::app
