#include "app/simulate_arguments.h"

#include <algorithm>
#include <utility>

#include "app/arguments.h"

namespace xpipe::app {

namespace {

constexpr std::uint32_t kDefaultMiniBatches = 8;

ir::Result<std::vector<const scheduler::Policy*>> find_policies(
    const std::string& names, const scheduler::PolicyRegistry& registry) {
  std::vector<const scheduler::Policy*> policies;
  ir::Error error{ir::ErrorKind::Usage, {}};
  for (const std::string& name : split_list(names)) {
    const auto policy = registry.find(name);
    if (policy.ok()) {
      policies.push_back(policy.value());
    } else {
      error.diagnostics.push_back(policy.error().diagnostics.front());
    }
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  return policies;
}

/// Each setting must be known to one policy at least; each policy gets those it knows.
scheduler::Options settings_for(const scheduler::Policy& policy,
                                const std::vector<const scheduler::Policy*>& all,
                                const scheduler::Options& settings) {
  scheduler::Options own;
  for (const auto& [name, value] : settings) {
    const auto knows = [&name = name](const scheduler::Policy* p) {
      return std::any_of(
          p->options.begin(), p->options.end(),
          [&name](const scheduler::OptionSpec& option) { return option.name == name; });
    };
    // A setting that no policy knows goes to each, which refuses it.
    if (knows(&policy) || std::none_of(all.begin(), all.end(), knows)) {
      own[name] = value;
    }
  }
  return own;
}

}  // namespace

void add_simulate_options(CLI::App& command, SimulateArguments& arguments) {
  text(command, "--policy", arguments.policies, "POLICY[,POLICY...]",
       "which policies, side by side (see xpipe policies)");
  whole_numbers(command, "--micro-batches", arguments.micro_batches, 1, 1U << 24,
                "micro-batches per mini-batch, T; several multiply with the policies");
  whole_number(command, "--mini-batches", arguments.mini_batches, 1, 1U << 24,
               "mini-batches of the segment, N (default 8)");
  settings(command, arguments.settings);
  add_workload_options(command, arguments.workload);
  add_passes_options(command, arguments.workload.passes);
  text(command, "--schedule", arguments.schedule, "FILE",
       "simulate this schedule (.json or .tasks) instead of a policy");
  text(command, "--trace", arguments.trace, "FILE",
       "write a Chrome trace of the run, to open in https://ui.perfetto.dev");
  real_number_or(command, "--what-if", arguments.what_if, 10.0, 0.001, 10'000.0,
                 "how much faster the run would be if one device, stage or link was X percent "
                 "faster, one by one (default 10)");
  command.add_flag(
      "--replay-all", arguments.replay_all,
      "replay every mini-batch of a long run, also where the state is proven to repeat "
      "(the figures are the same)");
  command.add_flag("--json", arguments.json, "one JSON document instead of a table");
  command.add_flag("--memory-over-time", arguments.memory_over_time,
                   "with --json: each device's memory at every moment it changes, by kind");
}

ir::Status check_combination(const SimulateArguments& arguments) {
  ir::Error error{ir::ErrorKind::Usage, {}};
  if (arguments.memory_over_time && !arguments.json) {
    error.diagnostics.push_back(
        {"options", "--memory-over-time",
         "has no effect without --json; add it, or take --trace, which has the same counters"});
  }
  if (!arguments.schedule.empty()) {
    const PassesArguments& passes = arguments.workload.passes;
    for (const auto& [given, option] :
         {std::pair{!arguments.policies.empty(), "--policy"},
          std::pair{!arguments.micro_batches.empty(), "--micro-batches"},
          std::pair{arguments.mini_batches.has_value(), "--mini-batches"},
          std::pair{!arguments.settings.empty(), "--set"},
          std::pair{arguments.replay_all, "--replay-all"},
          std::pair{passes.devices.has_value(), "--devices"},
          std::pair{!passes.placement.empty(), "--placement"},
          std::pair{!passes.replicas.empty(), "--replicas"},
          std::pair{passes.recompute != "none", "--recompute"},
          std::pair{passes.accumulate != 1, "--accumulate"},
          std::pair{passes.clip_norm.has_value(), "--clip-norm"}}) {
      if (given) {
        error.diagnostics.push_back(
            {"options", option, "has no effect with --schedule, which says it already; drop one"});
      }
    }
  } else if (arguments.policies.empty()) {
    error.diagnostics.push_back({"options", "--policy",
                                 "is missing: name one or several, joined by commas, or give a "
                                 "--schedule (xpipe policies lists them)"});
  }
  return error.diagnostics.empty() ? ir::Status() : ir::Status(error);
}

ir::Result<std::vector<RunRequest>> runs_of(const SimulateArguments& arguments,
                                            const scheduler::PolicyRegistry& registry) {
  const auto settings = parse_settings(arguments.settings);
  const auto policies = find_policies(arguments.policies, registry);
  ir::Error error{ir::ErrorKind::Usage, {}};
  for (const ir::Status& status : {settings.status(), policies.status()}) {
    if (!status.ok()) {
      error.diagnostics.insert(error.diagnostics.end(), status.error().diagnostics.begin(),
                               status.error().diagnostics.end());
    }
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  std::vector<std::uint32_t> micro_batches = arguments.micro_batches;
  if (micro_batches.empty()) {
    micro_batches = {1};
  }
  std::vector<RunRequest> runs;
  for (const scheduler::Policy* policy : policies.value()) {
    const scheduler::Options options = settings_for(*policy, policies.value(), settings.value());
    for (const std::uint32_t t : micro_batches) {
      runs.push_back({policy, options, t, arguments.mini_batches.value_or(kDefaultMiniBatches)});
    }
  }
  return runs;
}

ir::Result<RunRequest> run_of(const SimulateArguments& arguments,
                              const std::vector<const scheduler::Policy*>& policies,
                              const std::string& name) {
  const auto settings = parse_settings(arguments.settings);
  if (!settings.ok()) {
    return settings.error();
  }
  const auto policy = std::ranges::find(policies, name, &scheduler::Policy::name);
  XPIPE_CHECK(policy != policies.end()) << "policy " << name << " is not among those of the runs";
  return RunRequest{*policy, settings_for(**policy, policies, settings.value()),
                    arguments.micro_batches.empty() ? 1 : arguments.micro_batches.front(),
                    arguments.mini_batches.value_or(kDefaultMiniBatches)};
}

}  // namespace xpipe::app
