#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>

#include "app/commands.h"
#include "app/exit_status.h"
#include "app/gpu_device.h"
#include "app/interrupt.h"
#include "app/train_arguments.h"
#include "app/train_faults.h"
#include "app/train_gpus.h"
#include "app/train_output.h"
#include "app/train_ranks.h"
#include "app/train_report.h"
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

/// Ends the process where it stands, for what cannot be joined: a handler that hangs.
[[noreturn]] void end_here(const ir::Error& error, int status) {
  std::cout << std::flush;
  report_error(error);
  std::quick_exit(status);
}

/// Trains on the device that the command line names. On `cpu`, a handler that hangs is left behind
/// after the time-out, and its thread cannot be joined: then the process ends here.
ir::Result<nn::TrainResult> train_on_device(const nn::TrainConfig& config,
                                            nn::Trainer& trainer,
                                            const nn::ScheduleSource& source,
                                            const executor::CpuPoolOptions& threads,
                                            GpuDevice* gpu,
                                            const nn::TrainCallbacks& callbacks,
                                            TrainRanks& ranks) {
  if (gpu != nullptr) {
    return trainer.train(source, gpu->backend(), callbacks);
  }
  if (config.device == nn::TrainDevice::Inline) {
    executor::InlineBackend backend(config.time_out);
    return trainer.train(source, backend, callbacks);
  }
  auto pool = executor::CpuPool::create(threads);
  if (!pool.ok()) {
    return pool.error();
  }
  executor::CpuBackend backend(*pool.value(), {.time_out = config.time_out});
  ir::Result<nn::TrainResult> result = trainer.train(source, backend, callbacks);
  if (!result.ok() && !pool.value()->idle()) {
    const ir::Error error = ranks.leave(result.error());
    end_here(error, ranks.exit_status(error));
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

/// Compiles a segment as the command line asks. What it is given outlives it.
nn::ScheduleSource source_of(const TrainRequest& request,
                             const nn::TrainFacts& facts,
                             const TrainRanks& ranks) {
  return [&, graph = graph_of(facts, request.config, *request.policy)](
             std::uint32_t micro_batches, std::uint32_t mini_batches) -> ir::Result<ir::Schedule> {
    ir::Result<ir::Schedule> compiled = scheduler::compile(*request.policy,
                                                           {.stages = facts.stages,
                                                            .micro_batches = micro_batches,
                                                            .mini_batches = mini_batches,
                                                            .options = request.options},
                                                           graph, request.passes);
    if (compiled.ok() && ranks.uses_nccl()) {
      if (ir::Status fits = check_channels(compiled.value(), *ranks.peers()); !fits.ok()) {
        return fits.error();
      }
    }
    return compiled;
  };
}

/// Everything of one rank, between meeting the others and leaving them.
ir::Status train_rank(const TrainArguments& arguments,
                      TrainRequest request,  // a GPU's place in the configuration is found here
                      TrainRanks& ranks) {
  const nn::TrainConfig& config = request.config;
  if (ir::Status met = ranks.connect(config.time_out); !met.ok()) {
    return met;
  }
  std::unique_ptr<GpuDevice> gpu;  // outlives the trainer, whose tensors are there
  if (config.device == nn::TrainDevice::Cuda) {
    ir::Result<std::unique_ptr<GpuDevice>> opened = GpuDevice::open(request.config);
    if (!opened.ok()) {
      return opened.error();
    }
    gpu = std::move(opened).value();
  }
  nn::keep_tensor_memory();
  ir::Result<nn::Trainer> trainer = nn::Trainer::create(config, ranks.peers());
  if (!trainer.ok()) {
    return trainer.error();
  }
  const nn::TrainFacts& facts = trainer.value().facts();
  if (ir::Status status = check_profile(request, facts); !status.ok()) {
    return status;
  }
  const nn::ScheduleSource source = source_of(request, facts, ranks);
  const ir::Result<ir::Schedule> schedule =
      source(config.micro_batches, facts.segment_mini_batches);
  if (!schedule.ok()) {
    return schedule.error();
  }
  if (ir::Status same = ranks.agree(request, facts, schedule.value()); !same.ok()) {
    return same;
  }
  std::unique_ptr<NcclWay> nccl;  // as the GPUs
  nn::TrainCallbacks callbacks;
  if (ranks.uses_nccl()) {
    ir::Result<std::unique_ptr<NcclWay>> way =
        NcclWay::connect(schedule.value(), *ranks.peers(), request);
    if (!way.ok()) {
      return way.error();
    }
    nccl = std::move(way).value();
    callbacks.gpu_way = gpu->use(nccl->transport());
  }
  const std::uint32_t devices = schedule.value().devices;
  const bool pins = request.pin_threads && config.device == nn::TrainDevice::Cpu;
  const executor::CpuPoolOptions threads =
      train_pool_options(devices, devices, config.intra_op_threads, pins);
  TrainReport report(config, facts, schedule.value(), ranks.is_root(), !arguments.json);
  report.begin(config.device == nn::TrainDevice::Cpu ? describe_pinning(threads, pins) : "");
  report.follow(callbacks);
  callbacks.peers = ranks.peers();
  callbacks.interrupted = &InterruptGuard::interrupted();
  ir::Status faults;
  // Nothing of this process sets the environment.
  if (const char* text = std::getenv("XPIPE_TEST_FAULT");  // NOLINT(concurrency-mt-unsafe)
      text != nullptr) {
    callbacks.wrap_handlers = [&, text](executor::HandlerTable& handlers) {
      faults = inject_faults(text, ranks.peers() == nullptr ? 0 : ranks.peers()->rank(), handlers);
    };
  }
  const ir::Result<nn::TrainResult> result =
      train_on_device(config, trainer.value(), source, threads, gpu.get(), callbacks, ranks);
  report.end();
  if (!faults.ok() || !result.ok()) {
    return faults.ok() ? result.status() : faults;
  }
  if (request.saves_model) {
    if (ir::Status saved = trainer.value().save_model(arguments.model.save); !saved.ok()) {
      return saved;
    }
  }
  if (ranks.is_root()) {
    if (ir::Status written =
            write_outputs(arguments, request, facts, schedule.value(), result.value());
        !written.ok()) {
      return written;
    }
  }
  return ranks.finish();
}

/// Rank 0 writes for all; the paths are its own.
void drop_outputs(TrainArguments& arguments) {
  arguments.trace.clear();
  arguments.trace_epoch.reset();
  arguments.metrics.clear();
  arguments.model.save.clear();
}

/// Ends the run of all ranks. What only rank 0 looks at, its outputs, the others would never hear
/// of; what all look at, all refuse before they meet.
int refuse(const ir::Error& error,
           TrainArguments arguments,
           const scheduler::PolicyRegistry& registry,
           TrainRanks& ranks) {
  drop_outputs(arguments);
  const ir::Result<TrainRequest> others = train_request(arguments, registry);
  if (ranks.several() && others.ok() && ranks.check(others.value()).ok()) {
    const InterruptGuard guard;
    if (ranks.connect(others.value().config.time_out).ok()) {
      end_here(ranks.leave(error), exit_status_of(error.kind));
    }
  }
  return report_error(error);
}

/// Returns the exit status; what went wrong has been reported.
int train_command(TrainArguments arguments, const scheduler::PolicyRegistry& registry) {
  ir::Result<TrainRanks> ranks = TrainRanks::plan(arguments.transport);
  if (!ranks.ok()) {
    return report_error(ranks.error());
  }
  const bool saves_model = !arguments.model.save.empty();
  if (!ranks.value().is_root()) {
    drop_outputs(arguments);
  }
  if (arguments.device.empty()) {
    arguments.device = arguments.transport == "nccl" ? "cuda" : "cpu";
  }
  ir::Result<TrainRequest> request = train_request(arguments, registry);
  if (!request.ok()) {
    return refuse(request.error(), arguments, registry, ranks.value());
  }
  request.value().saves_model = saves_model;
  if (ir::Status fit = ranks.value().check(request.value()); !fit.ok()) {
    return report_error(fit.error());
  }
  if (ir::Status placed = ranks.value().place(request.value()); !placed.ok()) {
    return report_error(placed.error());
  }
  const InterruptGuard guard;
  const ir::Status status = train_rank(arguments, request.value(), ranks.value());
  if (status.ok()) {
    return kExitOk;
  }
  const ir::Error error = ranks.value().leave(status.error());
  const int exit_status = ranks.value().exit_status(error);
  if (ranks.value().several()) {
    end_here(error, exit_status);  // others may be stopped or unreachable: nothing waits for them
  }
  report_error(error);
  return exit_status;
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
      "Two processes: torchrun --standalone --no-python --nproc-per-node 2 xpipe train ...; see "
      "docs/processes.md\n"
      "With --device emulated the schedule alone is run, without model and data, and the options "
      "are\nthose of a simulation: xpipe train --device emulated --help");
  command->callback(
      [&context, arguments] { context.exit_status = train_command(*arguments, context.policies); });
}

}  // namespace xpipe::app
