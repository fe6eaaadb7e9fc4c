// The options of `xpipe train` about checkpoints, resuming and the export of weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "executor/torch/checkpoint_config.h"
#include "ir/status.h"

namespace xpipe::app {

/// As typed.
struct CheckpointArguments {
  std::string folder;
  std::string every;
  std::optional<std::uint32_t> keep;
  std::string resume;
  std::string export_file;
  bool force = false;
};

void add_checkpoint_options(CLI::App& command, CheckpointArguments& arguments);

/// Errors: Usage for what cannot be read, and for options without effect.
[[nodiscard]] ir::Result<executor::nn::CheckpointConfig> checkpoint_config_of(
    const CheckpointArguments& arguments);

}  // namespace xpipe::app
