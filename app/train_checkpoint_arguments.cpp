#include "app/train_checkpoint_arguments.h"

#include "app/arguments.h"
#include <fmt/format.h>

#include "executor/torch/checkpoint_plan.h"

namespace xpipe::app {

namespace {

namespace nn = executor::nn;

}  // namespace

void add_checkpoint_options(CLI::App& command, CheckpointArguments& arguments) {
  text(command, "--checkpoint", arguments.folder, "DIR",
       "write checkpoints into this folder (default: with --resume, where that found one)");
  text(command, "--checkpoint-every", arguments.every, "N|Nepochs",
       "mini-batches or epochs from one to the next (default 1epoch); the end always has one");
  whole_number(command, "--keep-checkpoints", arguments.keep, 1, 1U << 20,
               "the newest ones stay (default 3)");
  text(command, "--resume", arguments.resume, "DIR",
       "go on from the last checkpoint in this folder, or from this one checkpoint");
  command.add_flag("--force", arguments.force,
                   "replace another run's checkpoints; resume with other settings");
  text(command, "--export", arguments.export_file, "FILE.pt",
       "write the trained weights for Python: torch.load gives a dict of tensors");
}

ir::Result<nn::CheckpointConfig> checkpoint_config_of(const CheckpointArguments& arguments) {
  nn::CheckpointConfig config;
  config.folder = arguments.folder;
  config.resume = arguments.resume;
  config.force = arguments.force;
  config.export_file = arguments.export_file;
  const bool writes = !config.folder.empty() || !config.resume.empty();
  if (!arguments.every.empty() && !nn::parse_checkpoint_every(arguments.every, config)) {
    return usage("--checkpoint-every",
                 fmt::format("found '{}', expected mini-batches, such as 100, or epochs, such as "
                             "2epochs; at least 1",
                             arguments.every));
  }
  if (arguments.keep) {
    config.keep = *arguments.keep;
  }
  if (!writes && !arguments.every.empty()) {
    return usage("--checkpoint-every", "has no effect without --checkpoint");
  }
  if (!writes && arguments.keep) {
    return usage("--keep-checkpoints", "has no effect without --checkpoint");
  }
  if (!writes && arguments.force) {
    return usage("--force", "has no effect without --checkpoint or --resume");
  }
  return config;
}

}  // namespace xpipe::app
