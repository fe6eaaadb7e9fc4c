// What a simulation is about: the model's costs, the cluster and the sizes, read once from the
// command line, and from them the schedule and the cost model of one policy and one T.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/passes_arguments.h"
#include <CLI/CLI.hpp>

#include "ir/cluster.h"
#include "ir/profile.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "scheduler/cost_model.h"
#include "scheduler/partition.h"
#include "scheduler/policy.h"
#include "scheduler/stage_costs.h"

namespace xpipe::app {

/// The options that describe a workload, as typed.
struct WorkloadArguments {
  std::string profile;
  std::optional<std::uint32_t> samples;  ///< of a graph.txt, which does not say
  std::string cluster;
  std::optional<std::uint32_t> stages;
  std::vector<std::uint32_t> partition;
  std::optional<std::uint32_t> batch_size;
  std::optional<ir::Nanos> forward;
  std::optional<ir::Nanos> backward;
  std::optional<ir::Nanos> latency;
  std::optional<ir::Nanos> task_overhead;
  std::string optimizer = "adam";
  std::optional<double> momentum;
  PassesArguments passes;
  std::vector<ir::Bytes> memory_limit;  ///< of every device, or by device
  bool verbose = false;
};

void add_workload_options(CLI::App& command, WorkloadArguments& arguments);

/// A profile file of either kind, told by its content. `samples` is for a graph.txt; without it the
/// number is worked out from the Input node where that is a 224 x 224 or 299 x 299 image.
/// Errors: BadInput for the file, Usage where samples are missing or say otherwise.
[[nodiscard]] ir::Result<ir::Profile> read_profile(const std::string& path,
                                                   const std::optional<std::uint32_t>& samples);

struct Workload {
  ir::Profile profile;  ///< synthetic when none was given: one layer a stage
  bool synthetic = false;
  ir::Cluster cluster;
  std::uint32_t stages = 1;
  scheduler::Partition partition;
  std::optional<std::uint32_t> batch_size;  ///< absent: one sample a micro-batch (synthetic)
  scheduler::OptimizerKind optimizer = scheduler::OptimizerKind::Adam;
  ir::Nanos task_overhead = 0;
  scheduler::Passes passes;                          ///< of schedules that are compiled for it
  std::vector<std::vector<ir::DeviceId>> placement;  ///< by stage, then replica
  bool clips = false;  ///< the schedule clips gradients by their norm over all stages
  scheduler::Recompute recompute = scheduler::Recompute::None;  ///< of the schedules

  /// Samples of one mini-batch when it is cut into `micro_batches`.
  [[nodiscard]] std::uint32_t samples_per_mini_batch(std::uint32_t micro_batches) const {
    return batch_size.value_or(micro_batches);
  }

  /// The layers' names by stage.
  [[nodiscard]] std::vector<std::vector<std::string>> layers_by_stage() const;
};

/// What the files of a workload hold.
struct WorkloadFiles {
  std::optional<ir::Profile> profile;
  std::optional<ir::Cluster> cluster;
};

/// Reads the files that are named. Errors: BadInput, or Usage as of read_profile().
[[nodiscard]] ir::Result<WorkloadFiles> read_workload_files(const WorkloadArguments& arguments);

/// `files` are those that `arguments` name; `schedule`, when given, fixes the number of stages.
[[nodiscard]] ir::Result<Workload> make_workload(const WorkloadArguments& arguments,
                                                 const WorkloadFiles& files,
                                                 const ir::Schedule* schedule);

/// The same with files that are read here; with --verbose the cluster is shown on stderr.
[[nodiscard]] ir::Result<Workload> make_workload(const WorkloadArguments& arguments,
                                                 const ir::Schedule* schedule);

/// What a cost model needs to know of the policy.
struct PolicyCosts {
  bool whole_mini_batch = false;  ///< the mini-batch is the same, and T is 1
  scheduler::Extrapolation extrapolation = scheduler::Extrapolation::OptimizerStep;
};

/// The cost model and stage graph for one T.
[[nodiscard]] ir::Result<scheduler::StagedModel> staged_model(const Workload& workload,
                                                              std::uint32_t micro_batches,
                                                              const PolicyCosts& policy);

}  // namespace xpipe::app
