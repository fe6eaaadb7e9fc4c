#include "app/plan_arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "app/arguments.h"
#include "app/simulate_arguments.h"
#include <fmt/format.h>

namespace xpipe::app {

namespace {

/// Numbers of stages that are all tried; beyond it halves of the devices' number.
constexpr std::uint32_t kAllStages = 8;

std::vector<std::uint32_t> stages_to_try(const PlanArguments& arguments, const Workload& workload) {
  if (!arguments.workload.partition.empty()) {
    return {static_cast<std::uint32_t>(arguments.workload.partition.size())};
  }
  if (arguments.workload.stages) {
    return {*arguments.workload.stages};
  }
  const auto most = static_cast<std::uint32_t>(
      std::min(workload.cluster.devices.size(), workload.profile.layers.size()));
  std::vector<std::uint32_t> stages;
  for (std::uint32_t d = most; d > 0; d = most <= kAllStages ? d - 1 : d / 2) {
    stages.push_back(d);
  }
  return stages;
}

ir::Result<std::vector<double>> bandwidths_of(const PlanArguments& arguments,
                                              const Workload& workload) {
  std::vector<double> bandwidths;
  if (!arguments.level_bandwidths.empty()) {
    for (const std::string& word : split_list(arguments.level_bandwidths)) {
      double value = 0.0;
      const char* end = word.data() + word.size();
      const auto [stop, error] = std::from_chars(word.data(), end, value);
      if (error != std::errc{} || stop != end || !std::isfinite(value) || value <= 0) {
        return usage("--level-bandwidth",
                     fmt::format("found '{}', expected bytes per second, positive, one for each "
                                 "level of --machines; '{}' is none",
                                 arguments.level_bandwidths, word));
      }
      bandwidths.push_back(value);
    }
    return bandwidths;
  }
  // The slowest link that any pair may use.
  std::optional<double> slowest;
  const auto offer = [&slowest](const ir::LinkSpec& link) {
    if (link.bandwidth_bytes_per_s) {
      slowest =
          std::min(slowest.value_or(*link.bandwidth_bytes_per_s), *link.bandwidth_bytes_per_s);
    }
  };
  for (const ir::Link& link : workload.cluster.links) {
    offer(link.spec);
  }
  for (const ir::SharedLink& link : workload.cluster.shared_links) {
    offer(link.spec);
  }
  if (workload.cluster.default_link) {
    offer(*workload.cluster.default_link);
  }
  if (!slowest) {
    return usage("--level-bandwidth",
                 "is missing: the cluster's links have no bandwidth; give bytes per second");
  }
  bandwidths.push_back(*slowest);
  return bandwidths;
}

ir::Result<scheduler::PipedreamRequest> pipedream_request(const PlanArguments& arguments,
                                                          const Workload& workload) {
  std::vector<std::uint32_t> machines = arguments.machines;
  if (machines.empty()) {
    machines = {static_cast<std::uint32_t>(workload.cluster.devices.size())};
  }
  const ir::Result<std::vector<double>> bandwidths = bandwidths_of(arguments, workload);
  if (!bandwidths.ok()) {
    return bandwidths.error();
  }
  if (bandwidths.value().size() != machines.size()) {
    return usage("--level-bandwidth",
                 fmt::format("found {} bandwidths for {} levels of machines; give one for each",
                             bandwidths.value().size(), machines.size()));
  }
  const std::uint64_t all =
      std::accumulate(machines.begin(), machines.end(), std::uint64_t{1}, std::multiplies<>());
  if (all > workload.cluster.devices.size()) {
    return usage("--machines", fmt::format("found {} machines in all, {} has {} devices", all,
                                           workload.cluster.name, workload.cluster.devices.size()));
  }
  scheduler::PipedreamRequest request;
  for (std::size_t l = 0; l < machines.size(); ++l) {
    request.levels.push_back({machines[l], bandwidths.value()[l]});
  }
  request.recurrence =
      arguments.recurrence == "paper" ? scheduler::Recurrence::Paper : scheduler::Recurrence::Code;
  request.compression_ratio = arguments.compression_ratio.value_or(1.0);
  request.straight = arguments.straight;
  request.fewer_machines = arguments.fewer_machines;
  request.memory_bytes = arguments.machine_memory;
  return request;
}

}  // namespace

void add_plan_options(CLI::App& command, PlanArguments& arguments) {
  add_workload_options(command, arguments.workload);
  add_passes_options(command, arguments.workload.passes);
  text(command, "--policy", arguments.policies, "POLICY[,POLICY...]",
       "policies to choose among (default: all, see xpipe policies)");
  whole_numbers(command, "--micro-batches", arguments.micro_batches, 1, 1U << 24,
                "Ts to choose among (default: the divisors of the batch)");
  whole_number(command, "--mini-batches", arguments.mini_batches, 1, 1U << 20,
               "mini-batches to simulate (default: enough for all that is in flight)");
  settings(command, arguments.settings);
  one_of(command, "--search", arguments.search, {"order", "antichains", "pipedream"},
         "cuts of the file's order, of the network's branches, or PipeDream's program with "
         "replicas");
  one_of(command, "--recurrence", arguments.recurrence, {"code", "paper"},
         "of --search pipedream: the repository's sum, or the paper's maximum");
  whole_numbers(command, "--machines", arguments.machines, 1, 1U << 12,
                "of --search pipedream: machines by level, innermost first (default: the devices)");
  text(command, "--level-bandwidth", arguments.level_bandwidths, "X[,X...]",
       "of --search pipedream: bytes per second by level (default: the cluster's slowest link)");
  real_number(command, "--compression-ratio", arguments.compression_ratio, 1e-9, 1e18,
              "of --search pipedream: divides the bytes of a cut (default 1)");
  real_number(command, "--machine-memory", arguments.machine_memory, 1.0, 1e18,
              "of --search pipedream: bytes a machine may hold by its rule (default: no limit)");
  command.add_flag("--straight", arguments.straight, "of --search pipedream: no replicas");
  command.add_flag("--fewer-machines", arguments.fewer_machines,
                   "of --search pipedream: machines may stay idle");
  text(command, "--write-profile", arguments.new_profile, "FILE",
       "the profile with its layers in the order of the stages, for xpipe simulate --partition");
  command.add_flag("--json", arguments.json, "one JSON document instead of tables");
}

ir::Status check_combination(const PlanArguments& arguments) {
  ir::Error error{ir::ErrorKind::Usage, {}};
  const auto refuse = [&error](bool wrong, const char* option, std::string message) {
    if (wrong) {
      error.diagnostics.push_back({"options", option, std::move(message)});
    }
  };
  const bool pipedream = arguments.search == "pipedream";
  const bool by_hand = !arguments.workload.partition.empty();
  refuse(arguments.workload.profile.empty(), "--profile",
         "is missing: give the layers' costs (xpipe profile measures them)");
  refuse(arguments.workload.cluster.empty(), "--cluster",
         "is missing: give the devices and links (docs/formats.md has examples)");
  const auto only_pipedream = [&](bool given, const char* option) {
    refuse(given && !pipedream, option, "is an option of --search pipedream");
  };
  only_pipedream(!arguments.machines.empty(), "--machines");
  only_pipedream(!arguments.level_bandwidths.empty(), "--level-bandwidth");
  only_pipedream(arguments.compression_ratio.has_value(), "--compression-ratio");
  only_pipedream(arguments.machine_memory.has_value(), "--machine-memory");
  only_pipedream(arguments.straight, "--straight");
  only_pipedream(arguments.fewer_machines, "--fewer-machines");
  only_pipedream(arguments.recurrence != "code", "--recurrence");
  refuse(pipedream && by_hand, "--partition", "leaves --search pipedream nothing to search");
  refuse(pipedream && arguments.workload.stages.has_value(), "--stages",
         "has no effect with --search pipedream, which chooses them; say --machines");
  const PassesArguments& passes = arguments.workload.passes;
  refuse(passes.devices.has_value(), "--devices", "has no effect: the plan has a device a stage");
  refuse(!passes.placement.empty(), "--placement", "has no effect: the plan places the stages");
  refuse(!passes.replicas.empty(), "--replicas",
         "has no effect: --search pipedream chooses the replicas");
  refuse(by_hand && arguments.search == "antichains", "--partition",
         "leaves --search antichains nothing to search");
  if (by_hand && arguments.workload.stages &&
      *arguments.workload.stages != arguments.workload.partition.size()) {
    refuse(true, "--partition",
           fmt::format("found {} stages, expected {} (--stages {})",
                       arguments.workload.partition.size(), *arguments.workload.stages,
                       *arguments.workload.stages));
  }
  return error.diagnostics.empty() ? ir::Status() : ir::Status(error);
}

ir::Result<PlanRequest> plan_request(const PlanArguments& arguments,
                                     const Workload& workload,
                                     const scheduler::PolicyRegistry& registry) {
  PlanRequest request;
  request.search = arguments.search == "order"        ? Search::Order
                   : arguments.search == "antichains" ? Search::Antichains
                                                      : Search::Pipedream;
  if (!arguments.workload.partition.empty()) {
    ir::Result<StageCut> cut = cut_by_hand(workload, arguments.workload.partition);
    if (!cut.ok()) {
      return cut.error();
    }
    request.cut = std::move(cut).value();
  }
  request.stages = stages_to_try(arguments, workload);
  if (request.stages.front() > workload.cluster.devices.size()) {
    return usage("--stages", fmt::format("found {} stages for {} devices in {}; one stage a device",
                                         request.stages.front(), workload.cluster.devices.size(),
                                         arguments.workload.cluster));
  }
  if (request.stages.front() > workload.profile.layers.size()) {
    return usage("--stages",
                 fmt::format("{} layers cannot be cut into {} stages of at least one layer each",
                             workload.profile.layers.size(), request.stages.front()));
  }
  if (request.search == Search::Pipedream) {
    ir::Result<scheduler::PipedreamRequest> pipedream = pipedream_request(arguments, workload);
    if (!pipedream.ok()) {
      return pipedream.error();
    }
    request.pipedream = std::move(pipedream).value();
  }
  SimulateArguments runs;
  runs.policies = arguments.policies;
  if (runs.policies.empty()) {
    for (const scheduler::Policy& policy : registry.all()) {
      runs.policies += (runs.policies.empty() ? "" : ",") + policy.name;
    }
    if (request.search == Search::Pipedream) {
      runs.policies = "pipedream";
    }
  }
  runs.micro_batches = arguments.micro_batches;
  if (runs.micro_batches.empty()) {
    runs.micro_batches = micro_batches_to_try(*workload.batch_size);
  }
  for (const std::uint32_t t : runs.micro_batches) {
    if (t > *workload.batch_size) {
      return usage("--micro-batches",
                   fmt::format("found {} micro-batches for a mini-batch of {} samples; each needs "
                               "one at least",
                               t, *workload.batch_size));
    }
  }
  runs.settings = arguments.settings;
  ir::Result<std::vector<RunRequest>> found = runs_of(runs, registry);
  if (!found.ok()) {
    return found.error();
  }
  request.runs = std::move(found).value();
  for (RunRequest& run : request.runs) {
    run.mini_batches = arguments.mini_batches.value_or(0);
  }
  return request;
}

}  // namespace xpipe::app
