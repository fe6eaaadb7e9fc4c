// The commands that need LibTorch, in a binary that was built without it: they are there, and say
// what is missing.
#include "app/commands.h"
#include "app/exit_status.h"

namespace xpipe::app {

namespace {

void add_missing(CLI::App& app, Context& context, const std::string& name, const char* what) {
  CLI::App* command = app.add_subcommand(name, what);
  command->allow_extras();
  command->callback([&context, name] {
    context.exit_status = report_error(ir::make_error(
        ir::ErrorKind::Usage, "no-torch", "xpipe " + name,
        "this xpipe was built without LibTorch; build it with ./dev build to have the executor" +
            std::string(name == "train" ? ", or run the schedule alone with --device emulated"
                                        : "")));
  });
}

}  // namespace

void add_profile_command(CLI::App& app, Context& context) {
  add_missing(app, context, "profile", "measure a model's layers on this machine (not built in)");
}

void add_train_command(CLI::App& app, Context& context) {
  add_missing(app, context, "train", "train a model for real (not built in)");
}

}  // namespace xpipe::app
