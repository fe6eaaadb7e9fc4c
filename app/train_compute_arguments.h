// The options of `xpipe train` that say in which type and on which processors it computes.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "executor/torch/compute_config.h"
#include "ir/status.h"

namespace xpipe::app {

/// As typed.
struct ComputeArguments {
  std::string dtype = "float32";
  std::vector<std::uint32_t> device_map;
  std::string pin = "auto";
};

void add_compute_options(CLI::App& command, ComputeArguments& arguments);

/// What `--device` gives beside these. Errors: Usage for options that contradict it.
[[nodiscard]] ir::Result<executor::nn::ComputeConfig> compute_config(
    const ComputeArguments& arguments, const std::string& device);

}  // namespace xpipe::app
