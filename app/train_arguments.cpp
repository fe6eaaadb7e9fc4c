#include "app/train_arguments.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "app/arguments.h"
#include "app/train_ranks.h"
#include "app/workload.h"
#include <fmt/format.h>

#include "executor/torch/model_names.h"
#include "ir/files.h"
#include "scheduler/partition.h"

namespace xpipe::app {

namespace {

namespace nn = executor::nn;

/// `every=N`.
ir::Result<std::uint32_t> parse_every(const std::string& word) {
  const std::string digits = word.starts_with("every=") ? word.substr(6) : "";
  if (digits.empty() || digits.size() > 9 || digits[0] == '0' ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return usage("--prediction-error",
                 fmt::format("found '{}', expected every=N with N at least 1", word));
  }
  return static_cast<std::uint32_t>(std::stoul(digits));
}

/// Sends each `--set` to the policy when it knows the name, else to the model.
ir::Status share_settings(const TrainArguments& arguments,
                          const scheduler::Policy& policy,
                          scheduler::Options& for_policy,
                          std::map<std::string, std::string>& for_model) {
  const auto settings = parse_settings(arguments.settings);
  if (!settings.ok()) {
    return settings.error();
  }
  const std::vector<std::string> model_options = nn::model_option_names(arguments.config.model);
  for (const auto& [name, value] : settings.value()) {
    const bool models =
        std::find(model_options.begin(), model_options.end(), name) != model_options.end();
    if (models) {
      for_model[name] = value;
    } else {
      for_policy[name] = value;
    }
  }
  const auto resolved = scheduler::resolve_options(policy, for_policy);
  return resolved.status();
}

/// The configuration as far as the command line alone decides it.
ir::Result<nn::TrainConfig> config_of(const TrainArguments& arguments,
                                      std::optional<ir::Profile>& profile) {
  nn::TrainConfig config = arguments.config;
  const auto optimizer = nn::optimizer_kind_from(arguments.optimizer);
  if (!optimizer.ok()) {
    return optimizer.error();
  }
  config.optimizer.kind = optimizer.value();
  if (ir::Status status = check_model(config.model, arguments.model); !status.ok()) {
    return status.error();
  }
  const auto how_read = data_options(arguments.data);
  if (!how_read.ok()) {
    return how_read.error();
  }
  config.data_options = how_read.value();
  config.optimizer.learning_rate = arguments.learning_rate.value_or(config.optimizer.learning_rate);
  config.optimizer.momentum = arguments.momentum.value_or(0.0);
  config.optimizer.weight_decay = arguments.weight_decay.value_or(0.0);
  if (arguments.momentum && arguments.optimizer.starts_with("adam")) {
    return usage("--momentum", "is an option of --optimizer sgd and rmsprop; drop one");
  }
  config.device = arguments.device == "inline" ? nn::TrainDevice::Inline
                  : arguments.device == "cuda" ? nn::TrainDevice::Cuda
                                               : nn::TrainDevice::Cpu;
  ir::Result<nn::ComputeConfig> compute = compute_config(arguments.compute, arguments.device);
  if (!compute.ok()) {
    return compute.error();
  }
  config.compute = std::move(compute).value();
  config.recipe = recipe_of(arguments.recipe);
  const auto rates = learning_rate_schedule_of(arguments.recipe);
  if (!rates.ok()) {
    return rates.error();
  }
  config.optimizer.schedule = rates.value();
  const auto checkpoint = checkpoint_config_of(arguments.checkpoint);
  if (!checkpoint.ok()) {
    return checkpoint.error();
  }
  config.checkpoint = checkpoint.value();
  config.seed = arguments.seed;
  config.time_out = std::chrono::seconds(arguments.timeout_s);
  config.trace_epoch = arguments.trace_epoch;
  if (!arguments.prediction_error.empty()) {
    const auto every = parse_every(arguments.prediction_error);
    if (!every.ok()) {
      return every.error();
    }
    config.prediction_error_every = every.value();
  }
  if (!arguments.profile.empty()) {
    if (!config.partition.empty()) {
      return usage("--partition", "cannot be given together with --profile; drop one");
    }
    ir::Result<ir::Profile> read = read_profile(arguments.profile, std::nullopt);
    if (!read.ok()) {
      return read.error();
    }
    profile = std::move(read).value();
    auto partition = scheduler::balanced_partition(*profile, config.stages);
    if (!partition.ok()) {
      return partition.error();
    }
    config.partition = std::move(partition).value();
  }
  if (ir::Status status = nn::check_config(config); !status.ok()) {
    return status.error();
  }
  return config;
}

ir::Status check_outputs(const TrainArguments& arguments) {
  if (!arguments.trace.empty() && arguments.trace == arguments.metrics) {
    return usage("--metrics", fmt::format("--trace and --metrics both name {}", arguments.trace));
  }
  for (const std::string& file : {arguments.trace, arguments.metrics}) {
    if (!file.empty()) {
      if (ir::Status writable = ir::check_writable(file); !writable.ok()) {
        return writable;
      }
    }
  }
  if (arguments.trace.empty() && arguments.trace_epoch) {
    return usage("--trace-epoch", "has no effect without --trace");
  }
  return {};
}

}  // namespace

void add_train_options(CLI::App& command, TrainArguments& arguments) {
  nn::TrainConfig& config = arguments.config;
  text(command, "--policy", arguments.policy, "POLICY", "which policy (see xpipe policies)")
      ->required();
  add_train_model_options(command, config.model, arguments.model);
  text(command, "--data", config.data, "DIR",
       "MNIST's IDX files (plain or .gz), CIFAR-10's binary files, class folders of JPEG and PNG "
       "images (Tiny ImageNet), or a .txt file; told by content")
      ->required();
  add_train_data_options(command, arguments.data);
  whole_number(command, "--stages", config.stages, 1, 4096, "model stages, D");
  whole_numbers(command, "--partition", config.partition, 1, 1U << 20,
                "layers per stage (default: the arithmetic of the largest stage smallest)");
  text(command, "--profile", arguments.profile, "FILE",
       "cut the layers by this profile of the model, as xpipe simulate does");
  add_passes_options(command, arguments.passes);
  whole_number(command, "--micro-batches", config.micro_batches, 1, 1U << 20,
               "micro-batches per mini-batch, T");
  whole_number(command, "--batch-size", config.batch_size, 1, 1U << 20, "samples of a mini-batch");
  add_recipe_options(command, arguments.recipe);
  whole_number(command, "--epochs", config.epochs, 1, 1U << 20, "passes over the data");
  one_of(command, "--optimizer", arguments.optimizer, {"adam", "adamw", "rmsprop", "sgd"},
         "LibTorch's, with its defaults");
  real_number(command, "--lr", arguments.learning_rate, 0.0, 1e6, "learning rate (default 0.001)");
  real_number(command, "--momentum", arguments.momentum, 0.0, 1.0,
              "of sgd and rmsprop (default 0)");
  real_number(command, "--weight-decay", arguments.weight_decay, 0.0, 1e6, "(default 0)");
  whole_number(command, "--seed", arguments.seed, 0, 0xffffffffU,
               "fixes weights, order of samples, everything");
  one_of(command, "--device", arguments.device, {"cpu", "cuda", "inline", "emulated"},
         "cpu: a thread a stage; cuda: a stream a lane, on GPUs; inline: one task after the other, "
         "the reference; emulated: see below");
  add_compute_options(command, arguments.compute);
  add_transport_option(command, arguments.transport);
  whole_number(command, "--intra-op-threads", config.intra_op_threads, 1, 1024,
               "LibTorch's threads within each stage");
  whole_number(command, "--timeout-s", arguments.timeout_s, 1, 86400, "bounds every wait");
  command.add_flag("--stop-on-nan,!--no-stop-on-nan", config.stop_on_nan,
                   "end with status 5 when a loss is not finite (default: on)");
  text(command, "--prediction-error", arguments.prediction_error, "every=N",
       "record |W^ - W| / |W| of every N-th mini-batch in --metrics");
  add_checkpoint_options(command, arguments.checkpoint);
  settings(command, arguments.settings);
  command.add_flag("--json", arguments.json, "print one JSON document at the end, no table");
  text(command, "--metrics", arguments.metrics, "FILE",
       "write JSON lines: one record a mini-batch, one an epoch");
  text(command, "--trace", arguments.trace, "FILE", "write a Chrome trace of one epoch");
  whole_number(command, "--trace-epoch", arguments.trace_epoch, 0, 1U << 20,
               "which epoch to trace (default: the last)");
}

ir::Result<TrainRequest> train_request(const TrainArguments& arguments,
                                       const scheduler::PolicyRegistry& registry) {
  const auto policy = registry.find(arguments.policy);
  if (!policy.ok()) {
    return policy.error();
  }
  TrainRequest request;
  request.policy = policy.value();
  ir::Result<nn::TrainConfig> config = config_of(arguments, request.profile);
  if (!config.ok()) {
    return config.error();
  }
  request.config = std::move(config).value();
  request.pin_threads = arguments.compute.pin == "auto";
  request.config.extrapolation = request.policy->extrapolation;
  ir::Result<scheduler::Passes> passes = resolve_passes(arguments.passes, request.config.stages);
  if (!passes.ok()) {
    return passes.error();
  }
  request.passes = std::move(passes).value();
  if (ir::Status status =
          share_settings(arguments, *request.policy, request.options, request.config.model_options);
      !status.ok()) {
    return status.error();
  }
  if (ir::Status status = check_outputs(arguments); !status.ok()) {
    return status.error();
  }
  return request;
}

}  // namespace xpipe::app
