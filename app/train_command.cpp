#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <utility>

#include "app/arguments.h"
#include "app/commands.h"
#include "app/exit_status.h"
#include "app/interrupt.h"
#include "app/progress.h"
#include "app/train_metrics.h"
#include "app/workload.h"
#include <fmt/format.h>

#include "executor/cpu/cpu_backend.h"
#include "executor/cpu/cpu_pool.h"
#include "executor/inline_backend.h"
#include "executor/torch/intra_op_threads.h"
#include "executor/torch/model_names.h"
#include "executor/torch/trainer.h"
#include "ir/files.h"
#include "scheduler/compile.h"
#include "traces/chrome_trace.h"
#include "traces/weight_counters.h"

namespace xpipe::app {

namespace {

namespace nn = executor::nn;

struct TrainArguments {
  nn::TrainConfig config;
  std::string policy;
  std::string profile;
  std::string optimizer = "adam";
  std::optional<double> learning_rate;
  std::optional<double> momentum;
  std::optional<double> weight_decay;
  std::string device = "cpu";
  std::uint32_t seed = 0;
  std::uint32_t timeout_s = 300;
  std::optional<std::uint32_t> trace_epoch;
  std::string prediction_error;
  std::vector<std::string> settings;
  std::string trace;
  std::string metrics;
};

ir::Error usage(const char* option, std::string message) {
  return ir::make_error(ir::ErrorKind::Usage, "options", option, std::move(message));
}

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
ir::Result<nn::TrainConfig> config_of(const TrainArguments& arguments) {
  nn::TrainConfig config = arguments.config;
  const auto optimizer = nn::optimizer_kind_from(arguments.optimizer);
  if (!optimizer.ok()) {
    return optimizer.error();
  }
  config.optimizer.kind = optimizer.value();
  config.optimizer.learning_rate = arguments.learning_rate.value_or(config.optimizer.learning_rate);
  config.optimizer.momentum = arguments.momentum.value_or(0.0);
  config.optimizer.weight_decay = arguments.weight_decay.value_or(0.0);
  config.device = arguments.device == "inline" ? nn::TrainDevice::Inline : nn::TrainDevice::Cpu;
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
    const auto profile = read_profile(arguments.profile, std::nullopt);
    if (!profile.ok()) {
      return profile.error();
    }
    auto partition = scheduler::balanced_partition(profile.value(), config.stages);
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

/// What the stages exchange: of one micro-batch, or of the whole mini-batch where that is the unit.
scheduler::StageGraph graph_of(const nn::TrainFacts& facts,
                               const nn::TrainConfig& config,
                               const scheduler::Policy& policy) {
  scheduler::StageGraph graph = facts.stage_graph;
  if (policy.whole_mini_batch) {
    const std::uint32_t largest =
        (config.batch_size + config.micro_batches - 1) / config.micro_batches;
    for (scheduler::StageLink& link : graph.links) {
      link.bytes = link.bytes / largest * config.batch_size;
    }
  }
  return graph;
}

void print_head(const nn::TrainConfig& config,
                const nn::TrainFacts& facts,
                const ir::Schedule& schedule) {
  std::cout << fmt::format(
      "{}, {} stages (layers per stage {}), T = {}, {} mini-batches an epoch of {} samples\n",
      schedule.policy, facts.stages, fmt::join(facts.partition, ","), schedule.micro_batches,
      facts.mini_batches, config.batch_size);
  std::cout << fmt::format(
      "{} on {}: {} training and {} test samples, {} parameters, seed {}\n", config.model,
      facts.data_kind, facts.train_samples, facts.test_samples,
      [&facts] {
        std::int64_t sum = 0;
        for (const std::int64_t count : facts.stage_parameters) {
          sum += count;
        }
        return sum;
      }(),
      config.seed);
  if (facts.dropped_samples > 0) {
    std::cout << fmt::format(
        "the last {} samples of an epoch are too few for a mini-batch of {} micro-batches and are "
        "left out\n",
        facts.dropped_samples, config.micro_batches);
  }
  std::cout << "\nepoch   loss    train    test   samples/s\n" << std::flush;
}

/// Trains on the device that the command line names. On `cpu`, a handler that hangs is left behind
/// after the time-out, and its thread cannot be joined: then the process ends here.
ir::Result<nn::TrainResult> train_on_device(const nn::TrainConfig& config,
                                            nn::Trainer& trainer,
                                            const ir::Schedule& schedule,
                                            const nn::TrainCallbacks& callbacks) {
  if (config.device == nn::TrainDevice::Inline) {
    executor::InlineBackend backend;
    return trainer.train(schedule, backend, callbacks);
  }
  const std::uint32_t threads = config.intra_op_threads;
  auto pool = executor::CpuPool::create(
      {.devices = schedule.devices,
       .on_thread_start = [threads](ir::DeviceId) { nn::set_intra_op_threads(threads); }});
  if (!pool.ok()) {
    return pool.error();
  }
  executor::CpuBackend backend(*pool.value(), {.time_out = config.time_out});
  ir::Result<nn::TrainResult> result = trainer.train(schedule, backend, callbacks);
  if (!result.ok() && !pool.value()->idle()) {
    std::cout << std::flush;
    std::quick_exit(report_error(result.error()));
  }
  return result;
}

ir::Result<std::string> trace_of_run(const nn::TrainConfig& config,
                                     const nn::TrainFacts& facts,
                                     const ir::Schedule& schedule,
                                     const nn::TrainResult& result) {
  traces::TraceInfo info;
  info.title = fmt::format("run: {}, {} stages, T = {}, epoch {}", schedule.policy, facts.stages,
                           schedule.micro_batches, result.timeline_epoch);
  info.facts = {{"model", config.model},
                {"device", config.device == nn::TrainDevice::Inline ? "inline" : "cpu"},
                {"batch_size", std::to_string(config.batch_size)},
                {"epoch", std::to_string(result.timeline_epoch)},
                {"optimizer", std::string(nn::optimizer_name(config.optimizer.kind))},
                {"learning_rate", fmt::format("{}", config.optimizer.learning_rate)},
                {"seed", std::to_string(config.seed)},
                {"intra_op_threads", std::to_string(config.intra_op_threads)}};
  info.base_time_ns = result.timeline_began;
  std::size_t next = 0;
  for (const std::uint32_t count : facts.partition) {
    info.layers.emplace_back(facts.layers.begin() + static_cast<std::ptrdiff_t>(next),
                             facts.layers.begin() + static_cast<std::ptrdiff_t>(next + count));
    next += count;
  }
  return traces::chrome_trace(schedule, result.timeline, info,
                              traces::weight_counters(schedule, result.timeline));
}

ir::Status train_command(const TrainArguments& arguments,
                         const scheduler::PolicyRegistry& registry) {
  const auto policy = registry.find(arguments.policy);
  if (!policy.ok()) {
    return policy.error();
  }
  ir::Result<nn::TrainConfig> config = config_of(arguments);
  if (!config.ok()) {
    return config.error();
  }
  scheduler::Options options;
  if (ir::Status status =
          share_settings(arguments, *policy.value(), options, config.value().model_options);
      !status.ok()) {
    return status;
  }
  if (ir::Status status = check_outputs(arguments); !status.ok()) {
    return status;
  }
  ir::Result<nn::Trainer> trainer = nn::Trainer::create(config.value());
  if (!trainer.ok()) {
    return trainer.error();
  }
  const nn::TrainFacts& facts = trainer.value().facts();
  const ir::Result<ir::Schedule> schedule =
      scheduler::compile(*policy.value(),
                         {.stages = facts.stages,
                          .micro_batches = config.value().micro_batches,
                          .mini_batches = facts.mini_batches,
                          .options = options},
                         graph_of(facts, config.value(), *policy.value()));
  if (!schedule.ok()) {
    return schedule.error();
  }
  print_head(config.value(), facts, schedule.value());

  const InterruptGuard guard;
  const std::uint64_t per_epoch = facts.mini_batches;
  Progress progress("training", per_epoch * config.value().epochs);
  nn::TrainCallbacks callbacks;
  callbacks.interrupted = &InterruptGuard::interrupted();
  callbacks.on_mini_batch = [&](const nn::MiniBatchRecord& record) {
    progress.update(record.epoch * per_epoch + record.mini_batch + 1,
                    fmt::format("epoch {} loss {:.4f}", record.epoch, record.loss));
  };
  callbacks.on_epoch = [&](const nn::EpochRecord& epoch, const auto&) {
    progress.clear();
    std::cout << fmt::format("{:5}  {:.4f}  {:5.2f} %  {:5.2f} %  {:9.1f}\n", epoch.epoch,
                             epoch.train_loss, 100 * epoch.train_accuracy,
                             100 * epoch.test_accuracy, epoch.samples_per_s)
              << std::flush;
  };
  const ir::Result<nn::TrainResult> result =
      train_on_device(config.value(), trainer.value(), schedule.value(), callbacks);
  progress.clear();
  if (!result.ok()) {
    return result.error();
  }
  if (!arguments.metrics.empty()) {
    if (ir::Status written = ir::write_file(
            arguments.metrics, metrics_lines(config.value(), schedule.value(), result.value()));
        !written.ok()) {
      return written;
    }
  }
  if (!arguments.trace.empty()) {
    const auto trace = trace_of_run(config.value(), facts, schedule.value(), result.value());
    if (!trace.ok()) {
      return trace.error();
    }
    return ir::write_file(arguments.trace, trace.value());
  }
  return {};
}

void add_options(CLI::App& command, TrainArguments& arguments) {
  nn::TrainConfig& config = arguments.config;
  text(command, "--policy", arguments.policy, "POLICY", "which policy (see xpipe policies)")
      ->required();
  one_of(command, "--model", config.model, nn::model_names(), "a built-in model");
  text(command, "--data", config.data, "DIR",
       "MNIST's IDX files (plain or .gz) or CIFAR-10's binary files, told by content")
      ->required();
  whole_number(command, "--stages", config.stages, 1, 4096, "model stages, D");
  whole_numbers(command, "--partition", config.partition, 1, 1U << 20,
                "layers per stage (default: the arithmetic of the largest stage smallest)");
  text(command, "--profile", arguments.profile, "FILE",
       "cut the layers by this profile of the model, as xpipe simulate does");
  whole_number(command, "--micro-batches", config.micro_batches, 1, 1U << 20,
               "micro-batches per mini-batch, T");
  whole_number(command, "--batch-size", config.batch_size, 1, 1U << 20, "samples of a mini-batch");
  whole_number(command, "--epochs", config.epochs, 1, 1U << 20, "passes over the data");
  one_of(command, "--optimizer", arguments.optimizer, {"adam", "adamw", "rmsprop", "sgd"},
         "LibTorch's, with its defaults");
  real_number(command, "--lr", arguments.learning_rate, 0.0, 1e6, "learning rate (default 0.001)");
  real_number(command, "--momentum", arguments.momentum, 0.0, 1.0,
              "of sgd and rmsprop (default 0)");
  real_number(command, "--weight-decay", arguments.weight_decay, 0.0, 1e6, "(default 0)");
  whole_number(command, "--seed", arguments.seed, 0, 0xffffffffU,
               "fixes weights, order of samples, everything");
  one_of(command, "--device", arguments.device, {"cpu", "inline"},
         "cpu: a thread a stage; inline: one task after the other, the reference");
  whole_number(command, "--intra-op-threads", config.intra_op_threads, 1, 1024,
               "LibTorch's threads within each stage");
  whole_number(command, "--timeout-s", arguments.timeout_s, 1, 86400, "bounds every wait");
  command.add_flag("--stop-on-nan,!--no-stop-on-nan", config.stop_on_nan,
                   "end with status 5 when a loss is not finite (default: on)");
  text(command, "--prediction-error", arguments.prediction_error, "every=N",
       "record |W^ - W| / |W| of every N-th mini-batch in --metrics");
  settings(command, arguments.settings);
  text(command, "--metrics", arguments.metrics, "FILE",
       "write JSON lines: one record a mini-batch, one an epoch");
  text(command, "--trace", arguments.trace, "FILE", "write a Chrome trace of one epoch");
  whole_number(command, "--trace-epoch", arguments.trace_epoch, 0, 1U << 20,
               "which epoch to trace (default: the last)");
}

}  // namespace

void add_train_command(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("train", "train a model for real, as the schedule says");
  auto arguments = std::make_shared<TrainArguments>();
  add_options(*command, *arguments);
  command->footer(
      "Example: xpipe train --policy xpipe --model lenet5 --data examples/data/digits --stages 4 "
      "--micro-batches 4 --batch-size 64 --epochs 8");
  command->callback([&context, arguments] {
    if (ir::Status status = train_command(*arguments, context.policies); !status.ok()) {
      context.exit_status = report_error(status.error());
      if (status.error().kind == ir::ErrorKind::Interrupted) {
        context.exit_status = InterruptGuard::exit_status();
      }
    }
  });
}

}  // namespace xpipe::app
