// xpipe plan: cuts a network into stages and chooses policy and T by simulation.
#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>

#include "app/commands.h"
#include "app/exit_status.h"
#include "app/plan_arguments.h"
#include "app/plan_output.h"
#include "app/plan_search.h"
#include <fmt/format.h>

#include "ir/files.h"
#include "ir/profile_json.h"

namespace xpipe::app {

namespace {

/// Profile, cluster and batch; the cut is the search's business.
ir::Result<Workload> workload_of(const PlanArguments& arguments) {
  WorkloadArguments uncut = arguments.workload;
  uncut.stages = 1;
  uncut.partition.clear();
  return make_workload(uncut, nullptr);
}

/// What was assumed, each once, and what could not be tried.
std::vector<std::string> notes_of(const PlanOutcome& outcome) {
  std::vector<std::string> notes;
  for (const std::string& note : outcome.candidates.front().model.costs.notes) {
    notes.push_back(note);
  }
  constexpr std::size_t kShown = 4;
  for (std::size_t i = 0; i < std::min(kShown, outcome.refused.size()); ++i) {
    notes.push_back("not tried: " + outcome.refused[i]);
  }
  if (outcome.refused.size() > kShown) {
    notes.push_back(fmt::format("not tried: {} more", outcome.refused.size() - kShown));
  }
  return notes;
}

bool has_replicas(const StageCut& cut) {
  return std::ranges::any_of(cut.replicas, [](std::uint32_t r) { return r > 1; });
}

/// Simulates a cut that has been found with each policy and T.
ir::Result<PlanOutcome> simulate_found(const Workload& workload,
                                       const PlanRequest& request,
                                       const StageCut& cut) {
  PlanRequest found = request;
  found.stages = {static_cast<std::uint32_t>(cut.partition.size())};
  found.cut = cut;
  return search_plans(workload, found);
}

ir::Status plan_command(const PlanArguments& arguments, const scheduler::PolicyRegistry& registry) {
  if (ir::Status status = check_combination(arguments); !status.ok()) {
    return status;
  }
  if (!arguments.new_profile.empty()) {
    if (ir::Status writable = ir::check_writable(arguments.new_profile); !writable.ok()) {
      return writable;
    }
  }
  const ir::Result<Workload> workload = workload_of(arguments);
  if (!workload.ok()) {
    return workload.error();
  }
  const ir::Result<PlanRequest> request = plan_request(arguments, workload.value(), registry);
  if (!request.ok()) {
    return request.error();
  }
  PlanReport report{.workload = workload.value()};
  std::optional<PipedreamCut> pipedream;
  ir::Result<PlanOutcome> outcome = PlanOutcome{};
  if (request.value().search == Search::Pipedream) {
    ir::Result<PipedreamCut> found =
        PlanCutter(workload.value(), Search::Pipedream).pipedream(*request.value().pipedream);
    if (!found.ok()) {
      return found.error();
    }
    pipedream = std::move(found).value();
    report.pipedream = &*pipedream;
    outcome = simulate_found(workload.value(), request.value(), pipedream->cut);
    if (!outcome.ok() && has_replicas(pipedream->cut)) {
      report.notes.push_back(
          "not simulated, samples/s and times are those of PipeDream's formula, memory is not "
          "checked (--straight gives a plan without replicas): " +
          outcome.error().to_string());
      outcome = PlanOutcome{};
    }
  } else {
    outcome = search_plans(workload.value(), request.value());
  }
  if (!outcome.ok()) {
    return outcome.error();
  }
  const StageCut* cut = pipedream ? &pipedream->cut : nullptr;
  if (!outcome.value().candidates.empty()) {
    if (!outcome.value().candidates.front().fits()) {
      return does_not_fit(outcome.value());
    }
    report.outcome = &outcome.value();
    report.notes = notes_of(outcome.value());
    cut = &outcome.value().candidates.front().cut;
  }
  if (!arguments.new_profile.empty()) {
    if (ir::Status written =
            ir::write_file(arguments.new_profile, ir::profile_to_json(cut->profile));
        !written.ok()) {
      return written;
    }
  }
  std::cout << (arguments.json ? plan_json(report) : plan_text(report));
  return {};
}

}  // namespace

void add_plan_command(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("plan", "cut a model into stages, choose policy and micro-batches");
  auto arguments = std::make_shared<PlanArguments>();
  add_plan_options(*command, *arguments);
  command->footer(
      "Example: xpipe plan --profile examples/profiles/vgg16.json --cluster "
      "examples/clusters/ethernet-10g.json");
  command->callback([&context, arguments] {
    if (ir::Status status = plan_command(*arguments, context.policies); !status.ok()) {
      context.exit_status = report_error(status.error());
    }
  });
}

}  // namespace xpipe::app
