// The options of `xpipe simulate`, as typed, and the runs that they ask for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/workload.h"
#include <CLI/CLI.hpp>

#include "ir/status.h"
#include "scheduler/policy.h"

namespace xpipe::app {

struct SimulateArguments {
  std::string policies;  ///< joined by commas
  WorkloadArguments workload;
  std::vector<std::uint32_t> micro_batches;
  std::optional<std::uint32_t> mini_batches;
  std::vector<std::string> settings;
  std::string schedule;
  std::string trace;
  std::optional<double> what_if;  ///< percent
  bool replay_all = false;
  bool json = false;
  bool memory_over_time = false;
};

/// Adds the options to `command`; `arguments` must outlive it.
void add_simulate_options(CLI::App& command, SimulateArguments& arguments);

/// Errors: Usage, every option that has no effect beside another.
ir::Status check_combination(const SimulateArguments& arguments);

/// One policy at one T.
struct RunRequest {
  const scheduler::Policy* policy = nullptr;
  scheduler::Options options;
  std::uint32_t micro_batches = 1;  ///< T as asked for
  std::uint32_t mini_batches = 1;   ///< N

  bool operator==(const RunRequest&) const = default;
};

/// Every combination of --policy and --micro-batches, policies outermost, in the order given. Each
/// policy gets the settings that it knows. Without --micro-batches T is 1.
/// Errors: Usage, every policy that there is not and every setting that is wrong.
[[nodiscard]] ir::Result<std::vector<RunRequest>> runs_of(
    const SimulateArguments& arguments, const scheduler::PolicyRegistry& registry);

/// The one run that `arguments` ask for, as one of several: `policies` are those of all runs, of
/// which it has `name`. Requires: one policy, at most one T. Errors: Usage for the settings.
[[nodiscard]] ir::Result<RunRequest> run_of(const SimulateArguments& arguments,
                                            const std::vector<const scheduler::Policy*>& policies,
                                            const std::string& name);

}  // namespace xpipe::app
