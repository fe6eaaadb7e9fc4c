#include "app/workload.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "app/arguments.h"
#include "app/cluster_files.h"
#include "app/exit_status.h"
#include <fmt/format.h>

#include "ir/file_kind.h"
#include "ir/files.h"
#include "ir/pipedream_graph.h"
#include "ir/profile_json.h"

namespace xpipe::app {

namespace {

using ir::ErrorKind;

constexpr ir::Nanos kDefaultForward = 1'000'000;
constexpr ir::Nanos kDefaultBackward = 2'000'000;

ir::Error usage(std::string code, std::string option, std::string message) {
  return ir::make_error(ErrorKind::Usage, std::move(code), std::move(option), std::move(message));
}

/// Equal layers, one a stage, one sample: a micro-batch is a sample, so it costs what the layer
/// does, and a whole mini-batch T times that.
ir::Profile synthetic_profile(std::uint32_t stages, ir::Nanos forward, ir::Nanos backward) {
  ir::Profile profile;
  profile.name = "equal stages";
  profile.provenance = "synthetic";
  profile.samples = 1;
  for (std::uint32_t k = 0; k < stages; ++k) {
    ir::LayerProfile layer;
    layer.name = fmt::format("layer{}", k);
    layer.forward = forward;
    layer.backward_input = backward / 2;
    layer.backward_weight = backward - backward / 2;
    profile.layers.push_back(std::move(layer));
    if (k > 0) {
      profile.edges.push_back({k - 1, k});
    }
  }
  return profile;
}

/// How many ImageNet images of 3 channels in fp32 the one Input node holds.
std::optional<std::uint32_t> images_of(const ir::Profile& profile) {
  constexpr ir::Bytes kImageBytes[] = {ir::Bytes{3} * 224 * 224 * 4, ir::Bytes{3} * 299 * 299 * 4};
  const ir::LayerProfile* input = nullptr;
  for (const ir::LayerProfile& layer : profile.layers) {
    if (layer.name.ends_with(" Input")) {
      if (input != nullptr) {
        return std::nullopt;
      }
      input = &layer;
    }
  }
  for (const ir::Bytes bytes : kImageBytes) {
    if (input != nullptr && input->output_bytes > 0 && input->output_bytes % bytes == 0) {
      return static_cast<std::uint32_t>(input->output_bytes / bytes);
    }
  }
  return std::nullopt;
}

ir::Status check_combination(const WorkloadArguments& arguments) {
  ir::Error error{ErrorKind::Usage, {}};
  const auto refuse = [&error](bool wrong, const char* option, const char* message) {
    if (wrong) {
      error.diagnostics.push_back({"options", option, message});
    }
  };
  const bool profile = !arguments.profile.empty();
  refuse(profile && arguments.forward, "--forward-us", "has no effect with --profile; drop one");
  refuse(profile && arguments.backward, "--backward-us", "has no effect with --profile; drop one");
  refuse(!profile && arguments.batch_size.has_value(), "--batch-size",
         "says how many of the profile's samples make a mini-batch; give --profile, too");
  refuse(!profile && !arguments.partition.empty(), "--partition",
         "cuts the layers of a profile; give --profile, too");
  refuse(!profile && arguments.samples.has_value(), "--samples",
         "is the batch that a graph.txt was taken with; give --profile, too");
  refuse(!arguments.cluster.empty() && arguments.latency.has_value(), "--latency-us",
         "has no effect with --cluster, whose links have latencies of their own; drop one");
  refuse(arguments.momentum.value_or(0.0) != 0.0 && arguments.optimizer != "sgd", "--momentum",
         "is an option of --optimizer sgd");
  return error.diagnostics.empty() ? ir::Status() : ir::Status(error);
}

scheduler::OptimizerKind optimizer_of(const WorkloadArguments& arguments) {
  if (arguments.optimizer == "sgd") {
    return arguments.momentum.value_or(0.0) == 0.0 ? scheduler::OptimizerKind::Sgd
                                                   : scheduler::OptimizerKind::SgdMomentum;
  }
  if (arguments.optimizer == "adamw") {
    return scheduler::OptimizerKind::AdamW;
  }
  if (arguments.optimizer == "rmsprop") {
    return scheduler::OptimizerKind::RmsProp;
  }
  return scheduler::OptimizerKind::Adam;
}

/// `--stages`, a schedule's, a partition's or a cluster's, which must agree.
ir::Result<std::uint32_t> stages_of(const WorkloadArguments& arguments,
                                    const ir::Schedule* schedule,
                                    const ir::Cluster* cluster) {
  std::optional<std::uint32_t> stages = arguments.stages;
  if (schedule != nullptr) {
    const auto count = static_cast<std::uint32_t>(schedule->stages.size());
    if (stages && *stages != count) {
      return usage(
          "stages", "--stages",
          fmt::format("found {}, but the schedule has {} stages; drop --stages", *stages, count));
    }
    stages = count;
  }
  if (!arguments.partition.empty()) {
    const auto count = static_cast<std::uint32_t>(arguments.partition.size());
    if (stages && *stages != count) {
      return usage(
          "partition", "--partition",
          fmt::format("found {} stages, expected {} (--stages {})", count, *stages, *stages));
    }
    stages = count;
  }
  if (!stages) {
    stages = arguments.passes.implied_stages();
  }
  if (!stages && cluster != nullptr) {
    stages = static_cast<std::uint32_t>(cluster->devices.size());
  }
  if (!stages) {
    return usage("stages", "--stages", "is missing: say into how many stages the model is cut");
  }
  return *stages;
}

std::uint32_t devices_of(const std::vector<std::vector<ir::DeviceId>>& placement) {
  std::uint32_t devices = 0;
  for (const auto& replicas : placement) {
    for (const ir::DeviceId device : replicas) {
      devices = std::max<std::uint32_t>(devices, ir::index_of(device) + 1U);
    }
  }
  return devices;
}

/// The mode that a schedule says it was compiled with.
scheduler::Recompute recompute_of(const ir::Schedule& schedule) {
  for (const auto mode : {scheduler::Recompute::Stage, scheduler::Recompute::Layer}) {
    for (const auto& [name, value] : schedule.options) {
      if (name == scheduler::kRecomputeOption && value == scheduler::recompute_name(mode)) {
        return mode;
      }
    }
  }
  return scheduler::Recompute::None;
}

/// Where the stages run: as `schedule` says, else as the options do.
ir::Status place(const WorkloadArguments& arguments,
                 const WorkloadFiles& files,
                 const ir::Schedule* schedule,
                 Workload& workload) {
  if (schedule != nullptr) {
    for (const ir::StageInfo& stage : schedule->stages) {
      workload.placement.push_back(stage.devices);
    }
    workload.recompute = recompute_of(*schedule);
    workload.clips =
        std::any_of(schedule->tasks.begin(), schedule->tasks.end(),
                    [](const ir::Task& task) { return task.kind() == ir::TaskKind::ClipNorm; });
  } else {
    ir::Result<scheduler::Passes> passes = resolve_passes(arguments.passes, workload.stages);
    if (!passes.ok()) {
      return passes.error();
    }
    workload.passes = std::move(passes).value();
    workload.placement = workload.passes.layout->by_stage();
    workload.recompute = workload.passes.recompute;
    workload.clips = workload.passes.clip_norm.has_value();
  }
  const std::uint32_t devices = devices_of(workload.placement);
  if (files.cluster.has_value() && files.cluster->devices.size() < devices) {
    return usage(
        "stages", "--stages",
        fmt::format("found {} stages on {} devices for {} devices in {}; use fewer, or "
                    "--devices and --placement to put several on one",
                    workload.stages, devices, files.cluster->devices.size(), arguments.cluster));
  }
  return {};
}

/// `limits` are of every device, or one by device; without any the cluster's stay.
ir::Status limit_memory(const std::vector<ir::Bytes>& limits, ir::Cluster& cluster) {
  if (limits.size() > 1 && limits.size() != cluster.devices.size()) {
    return usage(
        "memory-limit", "--memory-limit",
        fmt::format("found {} sizes for {} devices; expected one for all, or one by device",
                    limits.size(), cluster.devices.size()));
  }
  for (std::size_t d = 0; d < cluster.devices.size() && !limits.empty(); ++d) {
    cluster.devices[d].memory_bytes = limits.size() == 1 ? limits.front() : limits[d];
  }
  return {};
}

}  // namespace

void add_workload_options(CLI::App& command, WorkloadArguments& arguments) {
  text(command, "--profile", arguments.profile, "FILE",
       "layer costs: an xpipe.profile, or PipeDream's graph.txt");
  whole_number(command, "--samples", arguments.samples, 1, 1U << 24,
               "the batch a graph.txt was taken with (worked out for ImageNet images)");
  text(command, "--cluster", arguments.cluster, "FILE|NAME",
       "devices and links: an xpipe.cluster, or one of " + cluster_names());
  byte_sizes(command, "--memory-limit", arguments.memory_limit,
             "of every device, or one by device, such as 16GB or 40GB,35GiB (default: the "
             "cluster's)");
  command.add_flag("--verbose", arguments.verbose, "show the cluster as it was read, on stderr");
  whole_number(command, "--stages", arguments.stages, 1, 65535, "model stages, D");
  whole_numbers(command, "--partition", arguments.partition, 1, 1U << 20,
                "layers per stage (default: the slowest stage as fast as possible)");
  whole_number(command, "--batch-size", arguments.batch_size, 1, 1U << 24,
               "samples of a mini-batch (default: the profile's)");
  microseconds(command, "--forward-us", arguments.forward,
               "without a profile: a stage's forward of one micro-batch (default 1000)");
  microseconds(command, "--backward-us", arguments.backward,
               "without a profile: its backward (default 2000)");
  microseconds(command, "--latency-us", arguments.latency,
               "without a cluster: the latency of every link (default 0)");
  microseconds(command, "--task-overhead-us", arguments.task_overhead,
               "added to every task of a compute lane (default 0)");
  one_of(command, "--optimizer", arguments.optimizer, {"adam", "adamw", "rmsprop", "sgd"},
         "whose state is held, and whose step and prediction are priced");
  real_number(command, "--momentum", arguments.momentum, 0.0, 1.0, "of sgd (default 0)");
}

ir::Result<ir::Profile> read_profile(const std::string& path,
                                     const std::optional<std::uint32_t>& samples) {
  ir::Result<std::string> content = ir::read_file(path);
  if (!content.ok()) {
    return content.error();
  }
  const std::string& text = content.value();
  if (ir::file_kind(path, text) == ir::FileKind::PipedreamGraph) {
    ir::Result<ir::PipedreamGraph> graph =
        ir::pipedream_graph_from_text(text, path, samples.value_or(1));
    if (!graph.ok()) {
      return graph.error();
    }
    for (const std::string& note : graph.value().notes) {
      print_note(fmt::format("{}: {}", path, note));
    }
    ir::Profile profile = std::move(graph).value().profile;
    if (!samples) {
      const auto images = images_of(profile);
      if (!images) {
        return usage("samples", "--samples",
                     "is missing: " + path +
                         " does not say with which batch it was taken, and its input is not a "
                         "batch of 224 x 224 or 299 x 299 images");
      }
      profile = ir::pipedream_graph_from_text(text, path, *images).value().profile;
      print_note(
          fmt::format("{}: {} samples, worked out from the size of its input; --samples "
                      "says otherwise",
                      path, *images));
    }
    return profile;
  }
  ir::Result<ir::Profile> profile = ir::profile_from_json(text, path);
  if (profile.ok() && samples && *samples != profile.value().samples) {
    return usage("samples", "--samples",
                 fmt::format("found {}, but {} says it was taken with {}; drop --samples", *samples,
                             path, profile.value().samples));
  }
  return profile;
}

std::vector<std::vector<std::string>> Workload::layers_by_stage() const {
  std::vector<std::vector<std::string>> names;
  std::size_t next = 0;
  for (const std::uint32_t count : partition) {
    names.emplace_back();
    for (std::uint32_t i = 0; i < count; ++i) {
      names.back().push_back(profile.layers[next++].name);
    }
  }
  return names;
}

ir::Result<WorkloadFiles> read_workload_files(const WorkloadArguments& arguments) {
  WorkloadFiles files;
  if (!arguments.cluster.empty()) {
    ir::Result<ir::Cluster> cluster = read_cluster(arguments.cluster);
    if (!cluster.ok()) {
      return cluster.error();
    }
    files.cluster = std::move(cluster).value();
  }
  if (!arguments.profile.empty()) {
    ir::Result<ir::Profile> profile = read_profile(arguments.profile, arguments.samples);
    if (!profile.ok()) {
      return profile.error();
    }
    files.profile = std::move(profile).value();
  }
  return files;
}

ir::Result<Workload> make_workload(const WorkloadArguments& arguments,
                                   const ir::Schedule* schedule) {
  if (ir::Status status = check_combination(arguments); !status.ok()) {
    return status.error();
  }
  const ir::Result<WorkloadFiles> files = read_workload_files(arguments);
  if (!files.ok()) {
    return files.error();
  }
  ir::Result<Workload> workload = make_workload(arguments, files.value(), schedule);
  if (workload.ok() && arguments.verbose) {
    std::cerr << describe(workload.value().cluster);
  }
  return workload;
}

ir::Result<Workload> make_workload(const WorkloadArguments& arguments,
                                   const WorkloadFiles& files,
                                   const ir::Schedule* schedule) {
  if (ir::Status status = check_combination(arguments); !status.ok()) {
    return status.error();
  }
  Workload workload;
  workload.optimizer = optimizer_of(arguments);
  workload.task_overhead = arguments.task_overhead.value_or(0);
  const auto stages =
      stages_of(arguments, schedule, files.cluster.has_value() ? &*files.cluster : nullptr);
  if (!stages.ok()) {
    return stages.error();
  }
  workload.stages = stages.value();
  if (ir::Status placed = place(arguments, files, schedule, workload); !placed.ok()) {
    return placed.error();
  }
  workload.cluster = files.cluster.value_or(scheduler::uniform_cluster(
      devices_of(workload.placement), {.bandwidth_bytes_per_s = std::nullopt,
                                       .latency = arguments.latency.value_or(0),
                                       .duplex = ir::Duplex::Full}));
  if (ir::Status limited = limit_memory(arguments.memory_limit, workload.cluster); !limited.ok()) {
    return limited.error();
  }
  if (!files.profile.has_value()) {
    workload.synthetic = true;
    workload.profile =
        synthetic_profile(workload.stages, arguments.forward.value_or(kDefaultForward),
                          arguments.backward.value_or(kDefaultBackward));
    workload.partition.assign(workload.stages, 1);
    return workload;
  }
  workload.profile = *files.profile;
  workload.batch_size = arguments.batch_size.value_or(workload.profile.samples);
  if (!arguments.partition.empty()) {
    workload.partition = arguments.partition;
    if (ir::Status status = scheduler::check_partition(workload.profile, workload.partition);
        !status.ok()) {
      return status.error();
    }
    return workload;
  }
  ir::Result<scheduler::Partition> partition =
      scheduler::balanced_partition(workload.profile, workload.stages);
  if (!partition.ok()) {
    return partition.error();
  }
  workload.partition = std::move(partition).value();
  return workload;
}

ir::Result<scheduler::StagedModel> staged_model(const Workload& workload,
                                                std::uint32_t micro_batches,
                                                const PolicyCosts& policy) {
  const std::uint32_t samples = workload.samples_per_mini_batch(micro_batches);
  if (micro_batches > samples) {
    return usage("micro-batches", "--micro-batches",
                 fmt::format("found {} micro-batches for a mini-batch of {} samples; each needs "
                             "one at least",
                             micro_batches, samples));
  }
  return scheduler::stage_costs(workload.profile,
                                {.layers_per_stage = workload.partition,
                                 .batch_size = samples,
                                 .micro_batches = policy.whole_mini_batch ? 1 : micro_batches,
                                 .optimizer = workload.optimizer,
                                 .extrapolation = policy.extrapolation,
                                 .placement = workload.placement,
                                 .task_overhead = workload.task_overhead,
                                 .recompute = workload.recompute,
                                 .clips = workload.clips},
                                workload.cluster);
}

}  // namespace xpipe::app
