// `xpipe simulate --sweep`: many set-ups, answered on all cores, told in order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/sweep_axes.h"
#include <CLI/CLI.hpp>

#include "scheduler/policy.h"

namespace xpipe::app {

struct SweepArguments {
  std::vector<std::unique_ptr<RawOption>> options;  ///< those of `xpipe simulate`
  std::string output;
  std::optional<std::uint32_t> threads;
  bool json = false;
};

/// The options of `xpipe simulate` in a sweep; `arguments` must outlive `command`.
void add_sweep_options(CLI::App& command, SweepArguments& arguments);

/// The options that only a sweep has, in the help of `xpipe simulate`. Given without --sweep they
/// are refused.
void add_sweep_help(CLI::App& command);

/// Answers every set-up, whatever is wrong with some. Returns the exit status: 0 when all have
/// results, else the worst that a set-up would have ended with on its own; 130 when interrupted.
/// The same options give the same output whatever the number of threads.
[[nodiscard]] int run_sweep(const SweepArguments& arguments,
                            const scheduler::PolicyRegistry& registry);

}  // namespace xpipe::app
