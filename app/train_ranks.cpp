#include "app/train_ranks.h"

#include <csignal>
#include <cstdlib>
#include <utility>

#include "app/arguments.h"
#include "app/exit_status.h"
#include "app/gpu_device.h"
#include "app/interrupt.h"
#include "app/train_agreement.h"
#include "app/train_gpus.h"

#ifdef XPIPE_HAS_C10D
#include "executor/c10d/gloo_links.h"
#endif
#include "executor/processes/agreement.h"
#include "executor/processes/meeting_place.h"

namespace xpipe::app {

namespace {

namespace nn = executor::nn;

ir::Error usage(std::string message) {
  return ir::make_error(ir::ErrorKind::Usage, "options", "--transport", std::move(message));
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
    const executor::Stops stops{.interrupted = &InterruptGuard::interrupted(),
                                .signal = [] { return InterruptGuard::exit_status() - 128; },
                                .launcher = launch_->launched
                                                ? executor::Launcher(launch_->launcher)
                                                : executor::Launcher()};
    const executor::Patience patience{.time_out = time_out, .stops = stops};
    auto links = executor::connect_gloo(*launch_, patience);
    if (!links.ok()) {
      return links.error();
    }
    processes_ = std::make_unique<executor::Processes>(
        std::move(links).value(),
        executor::ProcessesOptions{.rank = launch_->rank, .time_out = time_out, .stops = stops});
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
  executor::Items items = items_to_agree(request, facts, schedule);
  items.emplace_back("--transport", uses_nccl_ ? "nccl" : "gloo");
  return executor::agree(*processes_, items);
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
