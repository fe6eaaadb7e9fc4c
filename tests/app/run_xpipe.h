// Runs the built binary as a user would, and says what it answered.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/scratch_folder.h"

namespace xpipe::app_test {

struct Answer {
  int status = -1;  ///< exit status; 128 + signal when it died by one
  std::string out;
  std::string err;
};

/// `arguments` are passed as they are, no shell between.
[[nodiscard]] Answer run_xpipe(const std::vector<std::string>& arguments);

/// The only run of `xpipe simulate ARGUMENTS --json`, which must succeed.
[[nodiscard]] nlohmann::json simulated_run(std::vector<std::string> arguments);

/// Starts it, waits for `marker` on its stdout, sends `signal`, and waits for the end.
[[nodiscard]] Answer run_xpipe_and_signal(const std::vector<std::string>& arguments,
                                          const std::string& marker,
                                          int signal);

/// Starts it, waits until the file `path` holds at least `lines` lines, sends `signal`, and waits
/// for the end.
[[nodiscard]] Answer run_xpipe_and_signal_at(const std::vector<std::string>& arguments,
                                             const std::string& path,
                                             std::size_t lines,
                                             int signal);

using tests::ScratchFolder;

[[nodiscard]] std::string read_all(const std::string& path);

/// The records of a `--metrics` file without what depends on the clock.
[[nodiscard]] std::vector<nlohmann::json> timeless(const std::string& path);

/// A path in the tree.
[[nodiscard]] std::string in_tree(const std::string& path);

}  // namespace xpipe::app_test
