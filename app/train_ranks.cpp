#include "app/train_ranks.h"

#include <csignal>
#include <cstdlib>
#include <utility>

#include "app/arguments.h"
#include "app/exit_status.h"
#include "app/gpu_device.h"
#include "app/interrupt.h"
#include "app/train_gpus.h"
#include <fmt/format.h>

#ifdef XPIPE_HAS_C10D
#include "executor/c10d/gloo_links.h"
#endif
#include "executor/processes/agreement.h"
#include "executor/processes/meeting_place.h"
#include "ir/schedule_json.h"

namespace xpipe::app {

namespace {

namespace nn = executor::nn;

ir::Error usage(std::string message) {
  return ir::make_error(ir::ErrorKind::Usage, "options", "--transport", std::move(message));
}

/// What must be the same on all ranks for the bits to be those of one process.
executor::Items items_of(const TrainRequest& request,
                         const nn::TrainFacts& facts,
                         const ir::Schedule& schedule) {
  const nn::TrainConfig& config = request.config;
  const nn::OptimizerConfig& optimizer = config.optimizer;
  const auto number = [](auto value) { return fmt::format("{}", value); };
  executor::Items items = {
      {"xpipe", XPIPE_VERSION},
      {"schedule", executor::fingerprint(ir::schedule_to_json(schedule))},
      {"policy", schedule.policy},
      {"--model", config.model},
      {"layers", executor::fingerprint(fmt::format("{}", fmt::join(facts.layers, "\n")))},
      {"parameters", fmt::format("{}", fmt::join(facts.stage_parameters, ","))},
      {"partition", fmt::format("{}", fmt::join(facts.partition, ","))},
      {"data", fmt::format("{} with {} training and {} test samples", facts.data_kind,
                           facts.train_samples, facts.test_samples)},
      {"--batch-size", number(config.batch_size)},
      {"--epochs", number(config.epochs)},
      {"--seed", number(config.seed)},
      {"--optimizer", std::string(nn::optimizer_name(optimizer.kind))},
      {"--lr", number(optimizer.learning_rate)},
      {"--momentum", number(optimizer.momentum)},
      {"--weight-decay", number(optimizer.weight_decay)},
      {"--intra-op-threads", number(config.intra_op_threads)},
      {"--prediction-error", number(config.prediction_error_every)},
      {"--timeout-s", number(config.time_out.count() / 1000)},
  };
  for (const auto& [name, value] : config.model_options) {
    items.emplace_back("--set " + name, value);
  }
  return items;
}

/// What stages or replicas bring together before a step, they do within a process.
ir::Status check_exchanges(const ir::Schedule& schedule, const executor::Peers& peers) {
  for (const ir::Task& task : schedule.tasks) {
    if (task.kind() == ir::TaskKind::SumTied || task.kind() == ir::TaskKind::ClipNorm) {
      const bool ties = task.kind() == ir::TaskKind::SumTied;
      return ir::make_error(ir::ErrorKind::Usage, "options", ties ? "--model" : "--clip-norm",
                            std::string(ties ? "weights that stages share"
                                             : "one norm over the gradients of all stages") +
                                " cannot be had over several processes; train in one process, or " +
                                (ties ? "untie them" : "drop the option"));
    }
  }
  for (std::size_t k = 0; k < schedule.stages.size(); ++k) {
    const std::vector<ir::DeviceId>& devices = schedule.stages[k].devices;
    const std::uint32_t rank = peers.rank_of(devices.front());
    for (const ir::DeviceId device : devices) {
      if (peers.rank_of(device) != rank) {
        return ir::make_error(
            ir::ErrorKind::Usage, "options", "--replicas",
            fmt::format("the replicas of stage {} are on ranks {} and {}, and all replicas of a "
                        "stage must be in one process; place them together with --placement, or "
                        "use as many processes as keeps them together",
                        k, rank, peers.rank_of(device)));
      }
    }
  }
  return {};
}

}  // namespace

void add_transport_option(CLI::App& command, std::string& transport) {
  one_of(
      command, "--transport", transport, {"gloo", "inprocess", "nccl"},
      "how processes that a launcher started exchange tensors: gloo through the host (default for "
      "several), nccl from GPU to GPU");
}

ir::Status TrainRanks::check(const TrainRequest& request) const {
  const std::uint32_t devices =
      request.passes.layout ? request.passes.layout->devices : request.config.stages;
  return launch_ ? executor::check_ranks(devices, launch_->ranks) : ir::Status();
}

ir::Status TrainRanks::place(TrainRequest& request) const {
  if (uses_nccl_) {
    if (ir::Status status = check_nccl(*launch_, request); !status.ok()) {
      return status;
    }
  }
  return launch_ && request.config.device == nn::TrainDevice::Cuda ? place_gpus(*launch_, request)
                                                                   : ir::Status();
}

ir::Result<TrainRanks> TrainRanks::plan(const std::string& transport) {
  TrainRanks ranks;
  if (transport == "inprocess") {
    return ranks;
  }
  // Asked before any thread starts.
  const auto variable = [](const char* name) -> const char* {
    return std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  };
  auto launch = executor::launch_environment(variable);
  if (!launch.ok()) {
    return launch.error();
  }
  const bool several = launch.value() && launch.value()->ranks > 1;
  if (!transport.empty() && !launch.value()) {
    ir::Error error =
        usage(transport +
              " needs a launcher: RANK and WORLD_SIZE are not set; start it with torchrun "
              "--no-python, mpirun or srun, or drop the option");
    if (const auto gpus = GpuDevice::count("--transport"); transport == "nccl" && !gpus.ok()) {
      error.diagnostics.push_back(gpus.error().diagnostics.front());
    }
    return error;
  }
  if (!several) {
    return ranks;
  }
#ifndef XPIPE_HAS_C10D
  return usage("this build has no gloo: Gloo's headers (Debian: libgloo-dev) were not there");
#endif
  ranks.launch_ = std::move(launch).value();
  ranks.uses_nccl_ = transport == "nccl";
  return ranks;
}

ir::Status TrainRanks::connect([[maybe_unused]] std::chrono::nanoseconds time_out) {
#ifdef XPIPE_HAS_C10D
  if (launch_) {
    // A peer that is gone is an error of the send, not the end of this process without a word.
    std::signal(SIGPIPE, SIG_IGN);
    const auto signal = [] { return InterruptGuard::exit_status() - 128; };
    const executor::Patience patience{
        .time_out = time_out, .interrupted = &InterruptGuard::interrupted(), .signal = signal};
    auto links = executor::connect_gloo(*launch_, patience);
    if (!links.ok()) {
      return links.error();
    }
    processes_ = std::make_unique<executor::Processes>(
        std::move(links).value(),
        executor::ProcessesOptions{.rank = launch_->rank,
                                   .time_out = time_out,
                                   .interrupted = &InterruptGuard::interrupted(),
                                   .signal = signal});
  }
#endif
  return {};
}

ir::Status TrainRanks::agree(const TrainRequest& request,
                             const nn::TrainFacts& facts,
                             const ir::Schedule& schedule) {
  if (!processes_) {
    return {};
  }
  if (ir::Status status = executor::check_ranks(schedule.devices, launch_->ranks); !status.ok()) {
    return status;
  }
  processes_->set_devices(schedule.devices);
  if (ir::Status status = check_exchanges(schedule, *processes_); !status.ok()) {
    return status;
  }
  return executor::agree(*processes_, items_of(request, facts, schedule));
}

ir::Status TrainRanks::finish() {
  return processes_ ? processes_->finish() : ir::Status();
}

ir::Error TrainRanks::leave(ir::Error error) {
  return processes_ ? processes_->leave(std::move(error)) : std::move(error);
}

int TrainRanks::exit_status(const ir::Error& error) const {
  if (error.kind == ir::ErrorKind::Interrupted) {
    const int signal = processes_ ? processes_->signal() : 0;
    if (error.diagnostics.front().code == "terminated") {
      return 128 + SIGTERM;  // another rank, before all had met
    }
    return signal > 0 ? 128 + signal : InterruptGuard::exit_status();
  }
  return exit_status_of(error.kind);
}

}  // namespace xpipe::app
