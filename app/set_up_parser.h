// Parses the command line of one set-up of a sweep, by the very options of `xpipe simulate`.
#pragma once

#include <string>
#include <vector>

#include "app/simulate_arguments.h"
#include <CLI/CLI.hpp>

#include "ir/status.h"

namespace xpipe::app {

/// Not thread-safe; used many times.
class SetUpParser {
 public:
  SetUpParser() { add_simulate_options(app_, arguments_); }

  SetUpParser(const SetUpParser&) = delete;
  SetUpParser& operator=(const SetUpParser&) = delete;

  /// `words` as a shell would pass them: {"--stages", "4"}. Errors: Usage.
  [[nodiscard]] ir::Result<SimulateArguments> parse(std::vector<std::string> words);

 private:
  SimulateArguments arguments_;
  CLI::App app_;
};

}  // namespace xpipe::app
