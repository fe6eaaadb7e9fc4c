#include <cstdint>
#include <iostream>

#include "app/arguments.h"
#include "app/commands.h"
#include "app/exit_status.h"
#include "app/passes_arguments.h"
#include <fmt/format.h>

#include "ir/dot.h"
#include "ir/files.h"
#include "ir/pytorch_csv.h"
#include "ir/schedule_json.h"
#include "ir/text.h"
#include "scheduler/compile.h"

namespace xpipe::app {

namespace {

struct ScheduleArguments {
  std::string policy;
  std::optional<std::uint32_t> stages;
  std::uint32_t micro_batches = 1;
  std::uint32_t mini_batches = 8;
  std::vector<std::string> settings;
  PassesArguments passes;
  std::string output;
  bool json = false;
};

enum class Form : std::uint8_t { Text, Json, Csv, Dot };

ir::Result<Form> form_of(const ScheduleArguments& arguments) {
  const std::string& file = arguments.output;
  if (file.empty()) {
    return arguments.json ? Form::Json : Form::Text;
  }
  if (file.ends_with(".json")) {
    return Form::Json;
  }
  if (file.ends_with(".tasks")) {
    return Form::Text;
  }
  if (file.ends_with(".csv")) {
    return Form::Csv;
  }
  if (file.ends_with(".dot")) {
    return Form::Dot;
  }
  return ir::make_error(ir::ErrorKind::Usage, "suffix", "-o " + file,
                        "the suffix says the form; expected .json (the IR), .tasks (text), .csv "
                        "(PyTorch) or .dot (Graphviz)");
}

std::string written(const ir::Schedule& schedule, Form form) {
  switch (form) {
    case Form::Text:
      return ir::schedule_to_text(schedule);
    case Form::Json:
      return ir::schedule_to_json(schedule);
    case Form::Csv:
      return ir::schedule_to_pytorch_csv(schedule);
    case Form::Dot:
      return ir::schedule_to_dot(schedule);
  }
  return {};
}

ir::Status make_schedule(const ScheduleArguments& arguments,
                         const scheduler::PolicyRegistry& policies) {
  const auto policy = policies.find(arguments.policy);
  if (!policy.ok()) {
    return policy.error();
  }
  const auto options = parse_settings(arguments.settings);
  if (!options.ok()) {
    return options.error();
  }
  const auto form = form_of(arguments);
  if (!form.ok()) {
    return form.error();
  }
  if (!arguments.output.empty()) {
    if (ir::Status writable = ir::check_writable(arguments.output); !writable.ok()) {
      return writable;
    }
  }
  const std::uint32_t stages =
      arguments.stages.value_or(arguments.passes.implied_stages().value_or(1));
  const auto passes = resolve_passes(arguments.passes, stages);
  if (!passes.ok()) {
    return passes.error();
  }
  const auto schedule = scheduler::compile(*policy.value(),
                                           {.stages = stages,
                                            .micro_batches = arguments.micro_batches,
                                            .mini_batches = arguments.mini_batches,
                                            .options = options.value()},
                                           scheduler::chain_of(stages), passes.value());
  if (!schedule.ok()) {
    return schedule.error();
  }
  if (form.value() == Form::Csv && !arguments.passes.replicas.empty()) {
    return ir::make_error(
        ir::ErrorKind::Usage, "options", "-o " + arguments.output,
        "PyTorch's CSV knows no replicas: its ranks would run other stages' parts; "
        "write a .json or .tasks, or drop --replicas");
  }
  if (form.value() == Form::Csv && ir::csv_loses_meaning(schedule.value())) {
    print_note("policy '" + arguments.policy +
               "' is asynchronous: the CSV keeps its order only. Which weight versions its passes "
               "read is lost; keep a .json or .tasks beside it");
  }
  const std::string content = written(schedule.value(), form.value());
  if (arguments.output.empty()) {
    std::cout << content;
    return {};
  }
  return ir::write_file(arguments.output, content);
}

}  // namespace

void add_schedule_command(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("schedule", "compile a policy to a schedule");
  auto arguments = std::make_shared<ScheduleArguments>();
  text(*command, "--policy", arguments->policy, "POLICY", "which policy (see xpipe policies)")
      ->required();
  whole_number(*command, "--stages", arguments->stages, 1, 65535, "model stages, D");
  whole_number(*command, "--micro-batches", arguments->micro_batches, 1, 1U << 24,
               "micro-batches per mini-batch, T");
  whole_number(*command, "--mini-batches", arguments->mini_batches, 1, 1U << 24,
               "mini-batches of the segment, N");
  add_passes_options(*command, arguments->passes);
  settings(*command, arguments->settings);
  text(*command, "-o,--output", arguments->output, "FILE",
       "write here: .json (IR), .tasks (text, one lane a line), .csv (PyTorch), .dot (Graphviz)");
  command->add_flag("--json", arguments->json, "without -o: print the IR as JSON");
  command->footer(
      "Example: xpipe schedule --policy xpipe --stages 4 --micro-batches 2 --mini-batches 3");
  command->callback([&context, arguments] {
    if (ir::Status status = make_schedule(*arguments, context.policies); !status.ok()) {
      context.exit_status = report_error(status.error());
    }
  });
}

}  // namespace xpipe::app
