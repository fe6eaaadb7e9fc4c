// The processes of an `xpipe train`: whether there are several, how they are connected, what they
// must have in common, and how they end together.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "app/train_arguments.h"
#include <CLI/CLI.hpp>

#include "executor/peers.h"
#include "executor/processes/launch_environment.h"
#include "executor/processes/processes.h"
#include "executor/torch/trainer.h"
#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::app {

/// `--transport`, as typed; empty: gloo where a launcher speaks of several processes.
void add_transport_option(CLI::App& command, std::string& transport);

/// The ranks of a run as a whole; one process is one rank and no peers.
class TrainRanks {
 public:
  /// Reads the launcher's variables and checks them against `--transport`. Errors: Usage.
  [[nodiscard]] static ir::Result<TrainRanks> plan(const std::string& transport);

  /// Whether the devices of the run can be dealt out, before anybody is met. Errors: Usage, with
  /// both numbers.
  [[nodiscard]] ir::Status check(const TrainRequest& request) const;

  /// Of --device cuda and --transport nccl: which GPUs this rank's devices are on, and whether NCCL
  /// can join them. Nothing to do for others, and for one process. Errors: Usage.
  [[nodiscard]] ir::Status place(TrainRequest& request) const;

  [[nodiscard]] bool several() const { return launch_.has_value(); }

  /// Whether tensors go from GPU to GPU.
  [[nodiscard]] bool uses_nccl() const { return uses_nccl_; }

  /// Whether this process prints and writes.
  [[nodiscard]] bool is_root() const { return !launch_ || launch_->rank == 0; }

  /// Meets the other ranks; nothing to do for one process. Errors: Runtime, Interrupted.
  ir::Status connect(std::chrono::nanoseconds time_out);

  /// The schedule's devices, and that all ranks hold the same. Errors: Runtime "ranks-differ".
  ir::Status agree(const TrainRequest& request,
                   const executor::nn::TrainFacts& facts,
                   const ir::Schedule& schedule);

  /// Null for one process.
  [[nodiscard]] executor::Peers* peers() const { return processes_.get(); }

  /// Everybody is done. Errors: the first failure of any rank.
  ir::Status finish();

  /// Tells the others, and returns the first cause of all.
  [[nodiscard]] ir::Error leave(ir::Error error);

  /// 130 or 143 where a signal to any rank ended the run; else what the error asks for.
  [[nodiscard]] int exit_status(const ir::Error& error) const;

 private:
  std::optional<executor::LaunchEnvironment> launch_;
  bool uses_nccl_ = false;
  std::unique_ptr<executor::Processes> processes_;
};

}  // namespace xpipe::app
