// The options of `xpipe plan`, as typed, and the search that they ask for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/plan_search.h"
#include "app/workload.h"
#include <CLI/CLI.hpp>

#include "ir/status.h"
#include "scheduler/policy.h"

namespace xpipe::app {

struct PlanArguments {
  WorkloadArguments workload;
  std::string policies;  ///< joined by commas; empty: all
  std::vector<std::uint32_t> micro_batches;
  std::optional<std::uint32_t> mini_batches;
  std::vector<std::string> settings;
  std::string search = "order";
  std::string recurrence = "code";
  std::vector<std::uint32_t> machines;  ///< by level, innermost first
  std::string level_bandwidths;         ///< bytes/s, by level
  std::optional<double> compression_ratio;
  std::optional<double> machine_memory;
  bool straight = false;
  bool fewer_machines = false;
  std::string new_profile;
  bool json = false;
};

/// Adds the options to `command`; `arguments` must outlive it.
void add_plan_options(CLI::App& command, PlanArguments& arguments);

/// Errors: Usage, every option that is missing or has no effect beside another.
ir::Status check_combination(const PlanArguments& arguments);

/// What to try on this workload: all policies, Ts and numbers of stages where none were named.
/// Errors: Usage, BadInput for a cluster that does not say what PipeDream's program needs.
[[nodiscard]] ir::Result<PlanRequest> plan_request(const PlanArguments& arguments,
                                                   const Workload& workload,
                                                   const scheduler::PolicyRegistry& registry);

}  // namespace xpipe::app
