#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "app/commands.h"
#include "app/exit_status.h"
#include <CLI/CLI.hpp>

#include "policies/register_all.h"

namespace xpipe::app {

namespace {

/// Every long option and command that could have been meant at `app`.
std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  return names;
}

/// The command that was chosen, or the program itself.
const CLI::App& chosen(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : *commands.front();
}

int report_extras(const CLI::App& app) {
  const CLI::App& command = chosen(app);
  ir::Error error{ir::ErrorKind::Usage, {}};
  for (const std::string& word : app.remaining(true)) {
    const std::string name = word.substr(0, word.find('='));
    const bool is_option = name.starts_with("-");
    if (!is_option && !error.diagnostics.empty()) {
      continue;  // most likely the value of the unknown option before it
    }
    std::string message = is_option ? "there is no such option" : "this word is not expected here";
    if (const auto nearest = scheduler::nearest_name(name, names_of(command))) {
      message += "; did you mean '" + *nearest + "'?";
    }
    message += " (see xpipe " + (&command == &app ? "" : command.get_name() + " ") + "--help)";
    error.diagnostics.push_back({"", word, message});
  }
  return report_error(error);
}

/// Whether the words name the emulated device, which makes `train` another command.
bool asks_for_emulation(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--device=emulated" ||
        (word == "--device" && i + 1 < argc && std::string_view(argv[i + 1]) == "emulated")) {
      return true;
    }
  }
  return false;
}

}  // namespace

int run(int argc, const char* const* argv) {
  CLI::App app(
      "XPipe studies and runs pipeline-parallel training: one schedule, simulated and executed.",
      "xpipe");
  app.set_version_flag("--version", "xpipe " XPIPE_VERSION);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App*, const CLI::Error&) { return std::string(); });
  app.footer(
      "Exit status: 0 done, 2 usage, 3 bad input file, 4 illegal schedule, 5 failure while "
      "running,\n"
      "130 interrupted (143 by SIGTERM). Results go to stdout, everything else to stderr.");
  scheduler::PolicyRegistry policies;
  policies::register_all(policies);
  Context context{policies};
  context.sweep = std::any_of(argv, argv + argc,
                              [](const char* word) { return std::string_view(word) == "--sweep"; });
  context.emulated = asks_for_emulation(argc, argv);
  add_policies_command(app, context);
  add_clusters_command(app, context);
  add_schedule_command(app, context);
  add_check_command(app, context);
  add_simulate_command(app, context);
  add_plan_command(app, context);
  add_profile_command(app, context);
  if (context.emulated) {
    add_emulate_command(app, context);
  } else {
    add_train_command(app, context);
  }
  add_compare_command(app, context);
  try {
    app.parse(argc, argv);
    return context.exit_status;
  } catch (const CLI::ExtrasError&) {
    return report_extras(app);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    const CLI::App& command = chosen(app);
    if (&command == &app && !app.remaining().empty()) {
      return report_extras(app);  // a misspelt command: more helpful than that one is missing
    }
    std::cerr << "xpipe: " << error.what() << " (see xpipe "
              << (&command == &app ? "" : command.get_name() + " ") << "--help)\n";
    return kExitUsage;
  } catch (const std::exception& error) {
    std::cerr << "xpipe: internal error: " << error.what() << '\n';
    return kExitRuntime;
  }
}

}  // namespace xpipe::app
