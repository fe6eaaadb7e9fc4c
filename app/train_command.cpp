#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>

#include "app/commands.h"
#include "app/exit_status.h"
#include "app/gpu_device.h"
#include "app/interrupt.h"
#include "app/progress.h"
#include "app/train_arguments.h"
#include "app/train_output.h"
#include "app/train_threads.h"
#include <fmt/format.h>

#include "executor/cpu/cpu_backend.h"
#include "executor/cpu/cpu_pool.h"
#include "executor/inline_backend.h"
#include "executor/torch/tensor_memory.h"
#include "executor/torch/trainer.h"
#include "ir/files.h"
#include "scheduler/compile.h"

namespace xpipe::app {

namespace {

namespace nn = executor::nn;

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

/// Trains on the device that the command line names. On `cpu`, a handler that hangs is left behind
/// after the time-out, and its thread cannot be joined: then the process ends here.
ir::Result<nn::TrainResult> train_on_device(const nn::TrainConfig& config,
                                            nn::Trainer& trainer,
                                            const nn::ScheduleSource& source,
                                            const executor::CpuPoolOptions& threads,
                                            GpuDevice* gpu,
                                            const nn::TrainCallbacks& callbacks) {
  if (gpu != nullptr) {
    return trainer.train(source, gpu->backend(), callbacks);
  }
  if (config.device == nn::TrainDevice::Inline) {
    executor::InlineBackend backend;
    return trainer.train(source, backend, callbacks);
  }
  auto pool = executor::CpuPool::create(threads);
  if (!pool.ok()) {
    return pool.error();
  }
  executor::CpuBackend backend(*pool.value(), {.time_out = config.time_out});
  ir::Result<nn::TrainResult> result = trainer.train(source, backend, callbacks);
  if (!result.ok() && !pool.value()->idle()) {
    std::cout << std::flush;
    std::quick_exit(report_error(result.error()));
  }
  return result;
}

/// A profile of another model would cut this one at the wrong places.
ir::Status check_profile(const TrainRequest& request, const nn::TrainFacts& facts) {
  if (!request.profile) {
    return {};
  }
  std::vector<std::string> names;
  for (const ir::LayerProfile& layer : request.profile->layers) {
    names.push_back(layer.name);
  }
  if (names == facts.layers) {
    return {};
  }
  return ir::make_error(
      ir::ErrorKind::Usage, "profile", "--profile",
      fmt::format("is of another model: its layers are {}, those of {} are {}",
                  fmt::join(names, " "), request.config.model, fmt::join(facts.layers, " ")));
}

ir::Status write_outputs(const TrainArguments& arguments,
                         const TrainRequest& request,
                         const nn::TrainFacts& facts,
                         const ir::Schedule& schedule,
                         const nn::TrainResult& result) {
  if (!arguments.metrics.empty()) {
    if (ir::Status written =
            ir::write_file(arguments.metrics, metrics_lines(request.config, schedule, result));
        !written.ok()) {
      return written;
    }
  }
  if (!arguments.trace.empty()) {
    const auto trace = trace_of_run(request, facts, result);
    if (!trace.ok()) {
      return trace.error();
    }
    if (ir::Status written = ir::write_file(arguments.trace, trace.value()); !written.ok()) {
      return written;
    }
  }
  if (arguments.json) {
    std::cout << training_json(request.config, facts, schedule, result);
  }
  return {};
}

ir::Status train_command(const TrainArguments& arguments,
                         const scheduler::PolicyRegistry& registry) {
  ir::Result<TrainRequest> request = train_request(arguments, registry);
  if (!request.ok()) {
    return request.error();
  }
  std::unique_ptr<GpuDevice> gpu;  // outlives the trainer, whose tensors are there
  if (request.value().config.device == nn::TrainDevice::Cuda) {
    ir::Result<std::unique_ptr<GpuDevice>> opened = GpuDevice::open(request.value().config);
    if (!opened.ok()) {
      return opened.error();
    }
    gpu = std::move(opened).value();
  }
  const nn::TrainConfig& config = request.value().config;
  const InterruptGuard guard;
  nn::keep_tensor_memory();
  ir::Result<nn::Trainer> trainer = nn::Trainer::create(config);
  if (!trainer.ok()) {
    return trainer.error();
  }
  const nn::TrainFacts& facts = trainer.value().facts();
  if (ir::Status status = check_profile(request.value(), facts); !status.ok()) {
    return status;
  }
  const scheduler::StageGraph graph = graph_of(facts, config, *request.value().policy);
  const nn::ScheduleSource source = [&](std::uint32_t micro_batches, std::uint32_t mini_batches) {
    return scheduler::compile(*request.value().policy,
                              {.stages = facts.stages,
                               .micro_batches = micro_batches,
                               .mini_batches = mini_batches,
                               .options = request.value().options},
                              graph, request.value().passes);
  };
  const ir::Result<ir::Schedule> schedule =
      source(config.micro_batches, facts.segment_mini_batches);
  if (!schedule.ok()) {
    return schedule.error();
  }
  const std::uint32_t devices = schedule.value().devices;
  const bool pins = request.value().pin_threads && config.device == nn::TrainDevice::Cpu;
  const executor::CpuPoolOptions threads =
      train_pool_options(devices, devices, config.intra_op_threads, pins);
  for (const std::string& note : facts.notes) {
    print_note(note);
  }
  if (facts.has_batch_norm && schedule.value().micro_batches > 1) {
    print_note(fmt::format(
        "the model has BatchNorm layers: they normalize by the micro-batch, {} samples of {}, and "
        "move their running statistics {} times a mini-batch; --micro-batches 1 does not",
        config.batch_size / schedule.value().micro_batches, config.batch_size,
        schedule.value().micro_batches));
  }
  if (!arguments.json) {
    if (config.device == nn::TrainDevice::Cpu) {
      std::cout << describe_pinning(threads, pins) << '\n';
    }
    std::cout << head_lines(config, facts, schedule.value()) << std::flush;
  }

  const std::uint64_t per_epoch = facts.mini_batches;
  Progress progress("training", per_epoch * config.epochs);
  nn::TrainCallbacks callbacks;
  callbacks.interrupted = &InterruptGuard::interrupted();
  callbacks.on_mini_batch = [&](const nn::MiniBatchRecord& record) {
    progress.update(record.epoch * per_epoch + record.mini_batch + 1,
                    fmt::format("epoch {} loss {:.4f}", record.epoch, record.loss));
  };
  callbacks.on_epoch = [&](const nn::EpochRecord& epoch, const auto&) {
    progress.clear();
    if (arguments.json) {
      return;
    }
    std::cout << fmt::format("{:5}  {:.4f}  {:5.2f} %  {:5.2f} %  {:9.1f}\n", epoch.epoch,
                             epoch.train_loss, 100 * epoch.train_accuracy,
                             100 * epoch.test_accuracy, epoch.samples_per_s)
              << std::flush;
  };
  const ir::Result<nn::TrainResult> result =
      train_on_device(config, trainer.value(), source, threads, gpu.get(), callbacks);
  progress.clear();
  if (!result.ok()) {
    return result.error();
  }
  if (!arguments.model.save.empty()) {
    if (ir::Status saved = trainer.value().save_model(arguments.model.save); !saved.ok()) {
      return saved;
    }
  }
  return write_outputs(arguments, request.value(), facts, schedule.value(), result.value());
}

}  // namespace

void add_train_command(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("train", "train a model for real, as the schedule says");
  auto arguments = std::make_shared<TrainArguments>();
  add_train_options(*command, *arguments);
  command->footer(
      "Example: xpipe train --policy xpipe --model lenet5 --data examples/data/digits --stages 4 "
      "--micro-batches 4 --batch-size 64 --epochs 8\n"
      "A model of your own: xpipe train --policy xpipe --model net.pt --save-model trained.pt "
      "--data "
      "DIR --stages 2\n"
      "A text: xpipe train --policy xpipe --model gpt --set layers=4 --set sequence=64 --data "
      "corpus.txt --stages 2\n"
      "With checkpoints: ... --checkpoint run --checkpoint-every 100, and after an end of any "
      "kind\n"
      "the same with --resume run in the place of --checkpoint run (docs/checkpoints.md).\n"
      "With --device emulated the schedule alone is run, without model and data, and the options "
      "are\nthose of a simulation: xpipe train --device emulated --help");
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
