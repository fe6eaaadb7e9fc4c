#include <iostream>
#include <utility>

#include "app/arguments.h"
#include "app/commands.h"
#include "app/exit_status.h"

#include "ir/files.h"
#include "traces/compare.h"
#include "traces/compare_text.h"
#include "traces/timeline_file.h"

namespace xpipe::app {

namespace {

struct CompareArguments {
  std::string plan;
  std::string run;
  bool json = false;
};

ir::Result<traces::TimelineFile> read_trace(const std::string& path) {
  ir::Result<std::string> content = ir::read_file(path);
  if (!content.ok()) {
    return content.error();
  }
  return traces::read_timeline(content.value(), path);
}

ir::Status compare_files(const CompareArguments& arguments) {
  ir::Result<traces::TimelineFile> plan = read_trace(arguments.plan);
  ir::Result<traces::TimelineFile> run = read_trace(arguments.run);
  if (!plan.ok() || !run.ok()) {
    ir::Error error{ir::ErrorKind::BadInput, {}};
    for (const auto* file : {&plan, &run}) {
      if (!file->ok()) {
        const auto& faults = file->error().diagnostics;
        error.diagnostics.insert(error.diagnostics.end(), faults.begin(), faults.end());
      }
    }
    return error;
  }
  const ir::Result<traces::Comparison> comparison = traces::compare(plan.value(), run.value());
  if (!comparison.ok()) {
    return comparison.error();
  }
  if (comparison.value().plan_measured || !comparison.value().run_measured) {
    print_note(std::string("the first file is a ") +
               (comparison.value().plan_measured ? "run" : "plan") + " and the second a " +
               (comparison.value().run_measured ? "run" : "plan"));
  }
  std::cout << (arguments.json ? traces::to_json(comparison.value())
                               : traces::to_table(comparison.value()));
  return {};
}

}  // namespace

void add_compare_command(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("compare", "lay two timelines of one schedule over each other");
  auto arguments = std::make_shared<CompareArguments>();
  text(*command, "PLAN", arguments->plan, "FILE", "a trace, as xpipe simulate --trace writes it")
      ->required();
  text(*command, "RUN", arguments->run, "FILE", "a trace, as xpipe train --trace writes it")
      ->required();
  command->add_flag("--json", arguments->json, "one JSON document instead of tables");
  command->footer("Example: xpipe compare plan.json run.json");
  command->callback([&context, arguments] {
    if (ir::Status status = compare_files(*arguments); !status.ok()) {
      context.exit_status = report_error(status.error());
    }
  });
}

}  // namespace xpipe::app
