#include <iostream>
#include <memory>
#include <utility>

#include "app/arguments.h"
#include "app/commands.h"
#include "app/exit_status.h"
#include "app/kept_memory.h"
#include "app/schedule_files.h"
#include "app/simulate_arguments.h"
#include "app/simulation.h"
#include "app/sweep.h"
#include "app/workload.h"
#include <fmt/format.h>

#include "ir/files.h"
#include "scheduler/sends_pass.h"

namespace xpipe::app {

namespace {

ir::Status check_trace(const SimulateArguments& arguments) {
  if (arguments.trace.empty()) {
    return {};
  }
  const std::size_t runs = arguments.schedule.empty()
                               ? split_list(arguments.policies).size() *
                                     std::max<std::size_t>(1, arguments.micro_batches.size())
                               : 1;
  if (runs > 1) {
    return ir::make_error(ir::ErrorKind::Usage, "options", "--trace",
                          fmt::format("a trace holds one run, but these options make {}; "
                                      "name one policy and one --micro-batches",
                                      runs));
  }
  return ir::check_writable(arguments.trace);
}

/// What is shown moment by moment is replayed in full.
AnswerOptions options_of(const SimulateArguments& arguments) {
  return {.what_if_percent = arguments.what_if,
          .extrapolate =
              !arguments.replay_all && arguments.trace.empty() && !arguments.memory_over_time};
}

ir::Result<std::vector<Simulation>> simulate_policies(const SimulateArguments& arguments,
                                                      const Workload& workload,
                                                      const scheduler::PolicyRegistry& registry) {
  const ir::Result<std::vector<RunRequest>> requests = runs_of(arguments, registry);
  if (!requests.ok()) {
    return requests.error();
  }
  if (arguments.micro_batches.empty()) {
    print_note(
        "--micro-batches is not given: T = 1, which leaves a synchronous pipeline without "
        "parallelism");
  }
  std::vector<Simulation> runs;
  for (const RunRequest& request : requests.value()) {
    ir::Result<Simulation> run = simulate_policy(workload, request, options_of(arguments));
    if (!run.ok()) {
      return run.error();
    }
    runs.push_back(std::move(run).value());
  }
  return runs;
}

ir::Result<std::vector<Simulation>> simulate_file(const Workload& workload,
                                                  ir::Schedule schedule,
                                                  const scheduler::PolicyRegistry& registry,
                                                  const AnswerOptions& options) {
  const auto policy = registry.find(schedule.policy);
  ir::Result<Simulation> run = simulate_schedule(
      workload, std::move(schedule),
      policy.ok() ? policy.value()->extrapolation : scheduler::Extrapolation::OptimizerStep,
      options);
  if (!run.ok()) {
    return run.error();
  }
  std::vector<Simulation> runs;
  runs.push_back(std::move(run).value());
  return runs;
}

ir::Status simulate_command(const SimulateArguments& arguments,
                            const scheduler::PolicyRegistry& registry) {
  if (ir::Status status = check_combination(arguments); !status.ok()) {
    return status;
  }
  if (ir::Status status = check_trace(arguments); !status.ok()) {
    return status;
  }
  std::optional<ir::Schedule> schedule;
  if (!arguments.schedule.empty()) {
    ir::Result<ir::Schedule> read = read_legal_schedule(arguments.schedule);
    if (!read.ok()) {
      return read.error();
    }
    schedule = std::move(read).value();
    const scheduler::Sends sends = sends_of(arguments.workload.passes);
    if (ir::Status waiting = scheduler::make_sends_wait(sends, *schedule); !waiting.ok()) {
      return waiting;
    }
  }
  const ir::Result<Workload> workload =
      make_workload(arguments.workload, schedule ? &*schedule : nullptr);
  if (!workload.ok()) {
    return workload.error();
  }
  const ir::Result<std::vector<Simulation>> runs =
      schedule
          ? simulate_file(workload.value(), std::move(*schedule), registry, options_of(arguments))
          : simulate_policies(arguments, workload.value(), registry);
  if (!runs.ok()) {
    return runs.error();
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
  std::cout << (arguments.json ? to_json(workload.value(), runs.value(), arguments.memory_over_time)
                               : to_table(workload.value(), runs.value()));
  return {};
}

}  // namespace

void add_simulate_command(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("simulate", "predict time, memory and staleness, without a GPU");
  command->footer(
      "Example: xpipe simulate --policy xpipe,gpipe --stages 4 --micro-batches 1,2,4\n"
      "         xpipe simulate --policy gpipe --stages 4 --micro-batches 8 --clip-norm 1\n"
      "         xpipe simulate --sweep --policy xpipe,gpipe --stages 2,4,8 --micro-batches 1,2,4 "
      "\\\n"
      "             --latency-us 0,10,100 -o sweep.jsonl");
  if (context.sweep) {
    auto arguments = std::make_shared<SweepArguments>();
    add_sweep_options(*command, *arguments);
    command->callback(
        [&context, arguments] { context.exit_status = run_sweep(*arguments, context.policies); });
    return;
  }
  auto arguments = std::make_shared<SimulateArguments>();
  add_simulate_options(*command, *arguments);
  add_sweep_help(*command);
  command->callback([&context, arguments] {
    keep_freed_memory();
    if (ir::Status status = simulate_command(*arguments, context.policies); !status.ok()) {
      context.exit_status = report_error(status.error());
    }
  });
}

}  // namespace xpipe::app
