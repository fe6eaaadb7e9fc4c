#include <iostream>
#include <utility>

#include "app/arguments.h"
#include "app/commands.h"
#include "app/exit_status.h"
#include "app/schedule_files.h"
#include "app/simulation.h"
#include "app/workload.h"
#include <fmt/format.h>

#include "ir/files.h"

namespace xpipe::app {

namespace {

struct SimulateArguments {
  std::string policies;
  WorkloadArguments workload;
  std::vector<std::uint32_t> micro_batches;
  std::optional<std::uint32_t> mini_batches;
  std::vector<std::string> settings;
  std::string schedule;
  std::string trace;
  bool json = false;
};

constexpr std::uint32_t kDefaultMiniBatches = 8;

ir::Error usage(const char* option, std::string message) {
  return ir::make_error(ir::ErrorKind::Usage, "options", option, std::move(message));
}

ir::Status check_combination(const SimulateArguments& arguments) {
  const bool from_file = !arguments.schedule.empty();
  if (from_file) {
    for (const auto& [given, option] :
         {std::pair{!arguments.policies.empty(), "--policy"},
          std::pair{!arguments.micro_batches.empty(), "--micro-batches"},
          std::pair{arguments.mini_batches.has_value(), "--mini-batches"},
          std::pair{!arguments.settings.empty(), "--set"}}) {
      if (given) {
        return usage(option, "has no effect with --schedule, which says it already; drop one");
      }
    }
  } else if (arguments.policies.empty()) {
    return usage("--policy",
                 "is missing: name one or several, joined by commas, or give a "
                 "--schedule (xpipe policies lists them)");
  }
  return {};
}

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
ir::Result<scheduler::Options> settings_for(const scheduler::Policy& policy,
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

ir::Result<std::vector<Simulation>> simulate_policies(const SimulateArguments& arguments,
                                                      const Workload& workload,
                                                      const scheduler::PolicyRegistry& registry) {
  const auto settings = parse_settings(arguments.settings);
  if (!settings.ok()) {
    return settings.error();
  }
  const auto policies = find_policies(arguments.policies, registry);
  if (!policies.ok()) {
    return policies.error();
  }
  std::vector<std::uint32_t> micro_batches = arguments.micro_batches;
  if (micro_batches.empty()) {
    micro_batches = {1};
    print_note(
        "--micro-batches is not given: T = 1, which leaves a synchronous pipeline without "
        "parallelism");
  }
  std::vector<Simulation> runs;
  for (const scheduler::Policy* policy : policies.value()) {
    const auto options = settings_for(*policy, policies.value(), settings.value());
    for (const std::uint32_t t : micro_batches) {
      ir::Result<Simulation> run =
          simulate_policy(workload, *policy, options.value(), t,
                          arguments.mini_batches.value_or(kDefaultMiniBatches));
      if (!run.ok()) {
        return run.error();
      }
      runs.push_back(std::move(run).value());
    }
  }
  return runs;
}

ir::Status simulate_command(const SimulateArguments& arguments,
                            const scheduler::PolicyRegistry& registry) {
  if (ir::Status status = check_combination(arguments); !status.ok()) {
    return status;
  }
  if (!arguments.trace.empty()) {
    const std::size_t runs = arguments.schedule.empty()
                                 ? split_list(arguments.policies).size() *
                                       std::max<std::size_t>(1, arguments.micro_batches.size())
                                 : 1;
    if (runs > 1) {
      return usage("--trace", fmt::format("a trace holds one run, but these options make {}; "
                                          "name one policy and one --micro-batches",
                                          runs));
    }
    if (ir::Status writable = ir::check_writable(arguments.trace); !writable.ok()) {
      return writable;
    }
  }
  std::optional<ir::Schedule> schedule;
  if (!arguments.schedule.empty()) {
    ir::Result<ir::Schedule> read = read_legal_schedule(arguments.schedule);
    if (!read.ok()) {
      return read.error();
    }
    schedule = std::move(read).value();
  }
  const ir::Result<Workload> workload =
      make_workload(arguments.workload, schedule ? &*schedule : nullptr);
  if (!workload.ok()) {
    return workload.error();
  }
  ir::Result<std::vector<Simulation>> runs = std::vector<Simulation>();
  if (schedule) {
    const auto policy = registry.find(schedule->policy);
    ir::Result<Simulation> run = simulate_schedule(
        workload.value(), std::move(*schedule),
        policy.ok() ? policy.value()->extrapolation : scheduler::Extrapolation::OptimizerStep);
    if (!run.ok()) {
      return run.error();
    }
    runs.value().push_back(std::move(run).value());
  } else {
    runs = simulate_policies(arguments, workload.value(), registry);
    if (!runs.ok()) {
      return runs.error();
    }
  }
  if (!arguments.trace.empty()) {
    const ir::Result<std::string> trace = trace_of(workload.value(), runs.value().front());
    if (!trace.ok()) {
      return trace.error();
    }
    if (ir::Status written = ir::write_file(arguments.trace, trace.value()); !written.ok()) {
      return written;
    }
  }
  std::cout << (arguments.json ? to_json(workload.value(), runs.value())
                               : to_table(workload.value(), runs.value()));
  return {};
}

}  // namespace

void add_simulate_command(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("simulate", "predict time, memory and staleness, without a GPU");
  auto arguments = std::make_shared<SimulateArguments>();
  text(*command, "--policy", arguments->policies, "POLICY[,POLICY...]",
       "which policies, side by side (see xpipe policies)");
  whole_numbers(*command, "--micro-batches", arguments->micro_batches, 1, 1U << 24,
                "micro-batches per mini-batch, T; several multiply with the policies");
  whole_number(*command, "--mini-batches", arguments->mini_batches, 1, 1U << 24,
               "mini-batches of the segment, N (default 8)");
  settings(*command, arguments->settings);
  add_workload_options(*command, arguments->workload);
  text(*command, "--schedule", arguments->schedule, "FILE",
       "simulate this schedule (.json or .tasks) instead of a policy");
  text(*command, "--trace", arguments->trace, "FILE",
       "write a Chrome trace of the run, to open in https://ui.perfetto.dev");
  command->add_flag("--json", arguments->json, "one JSON document instead of a table");
  command->footer("Example: xpipe simulate --policy xpipe,gpipe --stages 4 --micro-batches 1,2,4");
  command->callback([&context, arguments] {
    if (ir::Status status = simulate_command(*arguments, context.policies); !status.ok()) {
      context.exit_status = report_error(status.error());
    }
  });
}

}  // namespace xpipe::app
