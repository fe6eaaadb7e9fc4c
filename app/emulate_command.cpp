// `xpipe train --device emulated`: no model and no data. The schedule of `xpipe simulate` with the
// same options is run by real threads, whose tasks sleep for as long as the plan says.
#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "app/arguments.h"
#include "app/commands.h"
#include "app/exit_status.h"
#include "app/interrupt.h"
#include "app/schedule_files.h"
#include "app/simulate_arguments.h"
#include "app/simulation.h"
#include "app/workload.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "executor/cpu/cpu_pool.h"
#include "executor/cpu/emulated_backend.h"
#include "executor/engine.h"
#include "ir/files.h"
#include "simulator/memory.h"

namespace xpipe::app {

namespace {

struct EmulateArguments {
  SimulateArguments simulate;
  std::uint32_t timeout_s = 300;
};

/// The options of `xpipe simulate` that decide what runs; the others are about its answers.
constexpr std::array kTaken = {"--policy",
                               "--micro-batches",
                               "--mini-batches",
                               "--set",
                               "--schedule",
                               "--profile",
                               "--samples",
                               "--cluster",
                               "--memory-limit",
                               "--verbose",
                               "--stages",
                               "--partition",
                               "--batch-size",
                               "--forward-us",
                               "--backward-us",
                               "--latency-us",
                               "--task-overhead-us",
                               "--optimizer",
                               "--momentum",
                               "--devices",
                               "--placement",
                               "--replicas",
                               "--recompute",
                               "--sends",
                               "--trace",
                               "--json",
                               "--help"};

/// Options of `xpipe train` on devices that compute.
constexpr std::array kOfComputing = {"--model",        "--data",
                                     "--epochs",       "--lr",
                                     "--weight-decay", "--seed",
                                     "--metrics",      "--intra-op-threads",
                                     "--stop-on-nan",  "--prediction-error",
                                     "--trace-epoch",  "--checkpoint",
                                     "--resume"};

void keep_taken_options(CLI::App& command) {
  const std::vector<CLI::Option*> all = command.get_options([](const CLI::Option* option) {
    return std::ranges::none_of(kTaken,
                                [option](const char* name) { return option->check_name(name); });
  });
  for (CLI::Option* option : all) {
    command.remove_option(option);
  }
}

/// Every option that has no effect here.
ir::Status check_options(const CLI::App& command, const SimulateArguments& arguments) {
  ir::Error error{ir::ErrorKind::Usage, {}};
  for (const char* name : kOfComputing) {
    if (command.get_option(name)->count() > 0) {
      error.diagnostics.push_back({"options", name,
                                   "has no effect with --device emulated, which waits instead of "
                                   "computing; drop it"});
    }
  }
  if (const std::size_t policies = split_list(arguments.policies).size();
      policies > 1 || arguments.micro_batches.size() > 1) {
    error.diagnostics.push_back(
        {"options", policies > 1 ? "--policy" : "--micro-batches",
         fmt::format("found {}, expected one: a run is of one policy and one T",
                     policies > 1 ? policies : arguments.micro_batches.size())});
  }
  if (const ir::Status combined = check_combination(arguments); !combined.ok()) {
    const auto& faults = combined.error().diagnostics;
    error.diagnostics.insert(error.diagnostics.end(), faults.begin(), faults.end());
  }
  return error.diagnostics.empty() ? ir::Status() : ir::Status(std::move(error));
}

/// The schedule, its costs and its planned timeline.
ir::Result<Simulation> plan(const SimulateArguments& arguments,
                            const ir::Result<Workload>& workload,
                            std::optional<ir::Schedule> schedule,
                            const scheduler::PolicyRegistry& registry) {
  if (!workload.ok()) {
    return workload.error();
  }
  if (schedule) {
    const auto policy = registry.find(schedule->policy);
    return simulate_schedule(
        workload.value(), std::move(*schedule),
        policy.ok() ? policy.value()->extrapolation : scheduler::Extrapolation::OptimizerStep,
        {.extrapolate = false});
  }
  const ir::Result<std::vector<RunRequest>> requests = runs_of(arguments, registry);
  if (!requests.ok()) {
    return requests.error();
  }
  return simulate_policy(workload.value(), requests.value().front(), {.extrapolate = false});
}

ir::Result<ir::Timeline> run_on_threads(const Simulation& planned, std::uint32_t timeout_s) {
  auto pool = executor::CpuPool::create({.devices = planned.schedule.devices});
  if (!pool.ok()) {
    return pool.error();
  }
  executor::EmulatedBackend backend(*pool.value(), planned.costs, std::chrono::seconds(timeout_s));
  const InterruptGuard guard;
  const std::jthread watcher([&backend](const std::stop_token& over) {
    while (!over.stop_requested()) {
      if (InterruptGuard::interrupted()) {
        backend.stop(
            ir::make_error(ir::ErrorKind::Interrupted, "interrupted", "", "stopped by a signal"));
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  return executor::run(planned.schedule, executor::no_op_handlers(), backend);
}

std::string emulation_json(const Simulation& planned, ir::Nanos measured) {
  nlohmann::ordered_json json = {{"format", "xpipe.emulation"}, {"version", 1}};
  json.update(to_json(planned.summary));
  json.erase("makespan_ns");
  json["planned_ns"] = planned.summary.makespan;
  json["measured_ns"] = measured;
  if (planned.summary.makespan > 0) {
    json["makespan_ratio"] =
        static_cast<double>(measured) / static_cast<double>(planned.summary.makespan);
  }
  json["notes"] = planned.notes;
  return json.dump(2) + "\n";
}

std::string emulation_text(const Simulation& planned, ir::Nanos measured) {
  const RunSummary& summary = planned.summary;
  const auto ms = [](ir::Nanos time) { return static_cast<double>(time) / 1e6; };
  std::string text = fmt::format(
      "{}, {} stages, T = {}, {} mini-batches: {} tasks on {} threads\n"
      "planned   {:.3f} ms\n"
      "measured  {:.3f} ms",
      summary.policy, summary.stages, summary.micro_batches, summary.mini_batches, summary.tasks,
      planned.schedule.devices, ms(summary.makespan), ms(measured));
  if (summary.makespan > 0) {
    text += fmt::format(", {:+.2f} %", 100 * (ms(measured) / ms(summary.makespan) - 1));
  }
  text += "\n";
  for (const std::string& note : planned.notes) {
    text += "note: " + note + "\n";
  }
  return text;
}

ir::Status emulate(const CLI::App& command,
                   const EmulateArguments& arguments,
                   const scheduler::PolicyRegistry& registry) {
  const SimulateArguments& simulate = arguments.simulate;
  if (ir::Status status = check_options(command, simulate); !status.ok()) {
    return status;
  }
  if (!simulate.trace.empty()) {
    if (ir::Status writable = ir::check_writable(simulate.trace); !writable.ok()) {
      return writable;
    }
  }
  std::optional<ir::Schedule> schedule;
  if (!simulate.schedule.empty()) {
    ir::Result<ir::Schedule> read = read_legal_schedule(simulate.schedule);
    if (!read.ok()) {
      return read.error();
    }
    schedule = std::move(read).value();
  }
  const ir::Result<Workload> workload =
      make_workload(simulate.workload, schedule ? &*schedule : nullptr);
  ir::Result<Simulation> planned = plan(simulate, workload, std::move(schedule), registry);
  if (!planned.ok()) {
    return planned.error();
  }
  ir::Result<ir::Timeline> run = run_on_threads(planned.value(), arguments.timeout_s);
  if (!run.ok()) {
    return run.error();
  }
  const ir::Nanos measured = ir::makespan(run.value());
  const std::string answer = simulate.json ? emulation_json(planned.value(), measured)
                                           : emulation_text(planned.value(), measured);
  if (!simulate.trace.empty()) {
    Simulation as_run = std::move(planned).value();
    as_run.timeline = std::move(run).value();
    as_run.memory = simulator::memory_over_time(as_run.schedule, as_run.timeline, as_run.costs);
    const ir::Result<std::string> trace = trace_of(workload.value(), as_run);
    if (!trace.ok()) {
      return trace.error();
    }
    if (ir::Status written = ir::write_file(simulate.trace, trace.value()); !written.ok()) {
      return written;
    }
  }
  std::cout << answer;
  return {};
}

}  // namespace

void add_emulate_command(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(
      "train", "run a schedule with real threads whose tasks sleep for as long as planned");
  auto arguments = std::make_shared<EmulateArguments>();
  add_simulate_options(*command, arguments->simulate);
  keep_taken_options(*command);
  auto device = std::make_shared<std::string>();
  one_of(*command, "--device", *device, {"emulated"},
         "no model, no data: tasks wait; with another device xpipe train has other options");
  whole_number(*command, "--timeout-s", arguments->timeout_s, 1, 86400,
               "bounds the wait for a task beyond its time");
  for (const char* name : kOfComputing) {
    command->add_option(name)->expected(0, 1)->group("");
  }
  command->footer(
      "Example: xpipe train --device emulated --policy xpipe --stages 4 --micro-batches 4 "
      "--forward-us 20000 --backward-us 40000 --trace run.json\n"
      "         (xpipe simulate with the same options writes the plan; xpipe compare lays them "
      "over each other)");
  command->callback([&context, command, arguments, device] {
    if (ir::Status status = emulate(*command, *arguments, context.policies); !status.ok()) {
      context.exit_status = report_error(status.error());
      if (status.error().kind == ir::ErrorKind::Interrupted) {
        context.exit_status = InterruptGuard::exit_status();
      }
    }
  });
}

}  // namespace xpipe::app
