// The commands of the `xpipe` binary, one file each (app/<name>_command.cpp). A command adds its
// options to the command line and a callback that does the work and sets the exit status.
#pragma once

#include <CLI/CLI.hpp>

#include "scheduler/policy.h"

namespace xpipe::app {

/// What all commands share. Outlives the parse.
struct Context {
  const scheduler::PolicyRegistry& policies;
  bool sweep = false;     ///< --sweep is on the command line: options may have several values
  bool emulated = false;  ///< --device emulated is: `train` takes the options of a simulation
  int exit_status = 0;
};

void add_policies_command(CLI::App& app, Context& context);
void add_clusters_command(CLI::App& app, Context& context);
void add_schedule_command(CLI::App& app, Context& context);
void add_check_command(CLI::App& app, Context& context);
void add_simulate_command(CLI::App& app, Context& context);
void add_plan_command(CLI::App& app, Context& context);
void add_profile_command(CLI::App& app, Context& context);
void add_train_command(CLI::App& app, Context& context);
/// `train`, in place of add_train_command(), where Context::emulated.
void add_emulate_command(CLI::App& app, Context& context);
void add_compare_command(CLI::App& app, Context& context);

/// The whole program: parses, runs one command, returns the exit status. Never throws.
int run(int argc, const char* const* argv);

}  // namespace xpipe::app
