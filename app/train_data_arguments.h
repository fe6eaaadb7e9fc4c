// The options of `xpipe train` that say how data are read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "executor/torch/data_options.h"
#include "ir/status.h"

namespace xpipe::app {

/// As typed.
struct TrainDataArguments {
  std::vector<std::string> augment;
  std::string tokens = "characters";
  std::uint32_t image_size = 0;
};

void add_train_data_options(CLI::App& command, TrainDataArguments& arguments);

/// Errors: Usage for an augmentation that there is not.
[[nodiscard]] ir::Result<executor::nn::DataOptions> data_options(
    const TrainDataArguments& arguments);

}  // namespace xpipe::app
