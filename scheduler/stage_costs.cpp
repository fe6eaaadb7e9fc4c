#include "scheduler/stage_costs.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "ir/cluster_json.h"
#include "scheduler/all_reduce.h"
#include "scheduler/link_costs.h"
#include "scheduler/rounding.h"
#include "scheduler/stage_sums.h"

namespace xpipe::scheduler {

namespace {

using ir::Bytes;
using ir::DeviceId;
using ir::index_of;
using ir::Nanos;
using ir::StageId;
using std::size_t;

using Placement = std::vector<std::vector<DeviceId>>;  // by StageId, then replica

Placement placement_of(const StageCostRequest& request) {
  if (!request.placement.empty()) {
    return request.placement;
  }
  Placement placement;
  for (size_t k = 0; k < request.layers_per_stage.size(); ++k) {
    placement.push_back({DeviceId(static_cast<std::uint16_t>(k))});
  }
  return placement;
}

ir::Status check_request(const ir::Profile& profile,
                         const StageCostRequest& request,
                         const ir::Cluster& cluster) {
  ir::Error error{.kind = ir::ErrorKind::Usage, .diagnostics = {}};
  const auto fault = [&error](std::string code, std::string where, std::string message) {
    error.diagnostics.push_back({std::move(code), std::move(where), std::move(message)});
  };
  if (const ir::Status partition = check_partition(profile, request.layers_per_stage);
      !partition.ok()) {
    error.diagnostics = partition.error().diagnostics;
  }
  if (profile.samples == 0) {
    fault("samples", "profile",
          "does not say for how many samples its times are; it needs samples >= 1");
  }
  if (request.batch_size == 0 || request.micro_batches == 0) {
    fault("batch-size", request.batch_size == 0 ? "--batch-size" : "--micro-batches",
          "is 0; at least 1 is needed");
  } else if (request.micro_batches > request.batch_size) {
    fault("micro-batches", "--micro-batches",
          std::to_string(request.micro_batches) + " micro-batches of a mini-batch of " +
              std::to_string(request.batch_size) + " samples (--batch-size " +
              std::to_string(request.batch_size) + "); at most one micro-batch a sample");
  }
  const size_t stages = request.layers_per_stage.size();
  if (!request.placement.empty() && request.placement.size() != stages) {
    fault("placement", "--placement",
          "places " + std::to_string(request.placement.size()) + " stages, there are " +
              std::to_string(stages));
  }
  const Placement placement = placement_of(request);
  for (size_t k = 0; k < placement.size(); ++k) {
    if (placement[k].empty()) {
      fault("placement", "stage " + std::to_string(k), "is placed on no device");
    }
    for (const DeviceId device : placement[k]) {
      if (index_of(device) >= cluster.devices.size()) {
        fault("placement", "stage " + std::to_string(k),
              "is placed on device " + std::to_string(index_of(device)) + ", the cluster has " +
                  std::to_string(cluster.devices.size()) +
                  " devices; use fewer stages, a larger cluster or --placement");
      }
    }
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  return {};
}

/// A norm that goes from stage to stage.
constexpr Bytes kNormBytes = sizeof(double);

/// bytes over the device's memory bandwidth; free where that is not known.
Nanos memory_time(const ir::DeviceSpec& device, Bytes bytes) {
  return device.memory_bandwidth_bytes_per_s.has_value()
             ? scale_half_up(bytes, kNanosPerSecond, 1, *device.memory_bandwidth_bytes_per_s)
             : 0;
}

/// Whether the profile says what the stage's optimizer step takes.
bool has_measured_step(const StageSums& sums) {
  return sums.parameters > 0 && sums.update.has_value();
}

Nanos at_speed(Nanos time, double speed) {
  return time == kTooLarge ? kTooLarge : scale_half_up(time, 1, 1, speed);
}

/// Costs of one stage; `scale(sum, speed)` gives a micro-batch's share of a sum.
template <typename Scale>
StageCosts costs_of(const StageSums& sums,
                    const ir::DeviceSpec& device,
                    const StageCostRequest& request,
                    const Scale& scale) {
  StageCosts costs;
  costs.forward = scale(sums.forward, device.speed);
  costs.backward_input = scale(sums.backward_input, device.speed);
  costs.backward_weight = scale(sums.backward, device.speed) - costs.backward_input;
  costs.saved_bytes = scale(sums.saved, 1.0);
  costs.saved_for_weight_bytes = scale(sums.saved_for_weight, 1.0);
  costs.workspace_bytes = scale(sums.workspace, 1.0);
  if (request.recompute == Recompute::Stage) {
    costs.kept_bytes = scale(sums.inputs, 1.0);
    costs.recomputed_bytes = costs.saved_bytes;
  } else if (request.recompute == Recompute::Layer) {
    costs.kept_bytes = scale(sums.layer_inputs, 1.0);
    costs.recomputed_bytes = scale(capped_sum(sums.layer_inputs, sums.largest_saved), 1.0);
  }
  costs.parameter_bytes = sums.parameters;
  const auto copies = [&sums](std::uint32_t count) {
    return capped_product(sums.parameters, count);
  };
  costs.optimizer_bytes = copies(optimizer_copies(request.optimizer));
  costs.prediction_bytes =
      copies(copies_kept_for_predict(request.optimizer, request.extrapolation));
  costs.step = has_measured_step(sums)
                   ? at_speed(*sums.update, device.speed)
                   : memory_time(device, copies(copies_touched_by_step(request.optimizer)));
  costs.predict = memory_time(
      device, copies(copies_touched_by_predict(request.optimizer, request.extrapolation)));
  costs.stash = memory_time(device, copies(kCopiesTouchedByStash));
  return costs;
}

std::vector<DeviceId> all_devices(const Placement& placement) {
  std::set<DeviceId> devices;
  for (const std::vector<DeviceId>& replicas : placement) {
    devices.insert(replicas.begin(), replicas.end());
  }
  return {devices.begin(), devices.end()};
}

/// One, where both stages are on it.
std::vector<DeviceId> tied_devices(const StageTie& tie, const Placement& placement) {
  const std::set<DeviceId> devices{placement[index_of(tie.first)].front(),
                                   placement[index_of(tie.second)].front()};
  return {devices.begin(), devices.end()};
}

/// All pairs of devices that exchange tensors, both directions, or gradients. Micro-batch j goes
/// to replica j mod r of each stage, so that replicas x and y of two stages meet when x and y are
/// equal modulo the greatest common divisor of their numbers.
DevicePairs pairs_of(const StageGraph& graph,
                     const Placement& placement,
                     const ir::Cluster& cluster,
                     bool clips) {
  DevicePairs pairs;
  for (const StageLink& link : graph.links) {
    const std::vector<DeviceId>& from = placement[index_of(link.from)];
    const std::vector<DeviceId>& to = placement[index_of(link.to)];
    const size_t step = std::gcd(from.size(), to.size());
    for (size_t x = 0; x < from.size(); ++x) {
      for (size_t y = x % step; y < to.size(); y += step) {
        if (from[x] != to[y]) {
          pairs.emplace(from[x], to[y]);
          pairs.emplace(to[y], from[x]);
        }
      }
    }
  }
  for (const std::vector<DeviceId>& replicas : placement) {
    pairs.merge(all_reduce_pairs(cluster.all_reduce, replicas));
  }
  for (const StageTie& tie : graph.ties) {
    pairs.merge(all_reduce_pairs(cluster.all_reduce, tied_devices(tie, placement)));
  }
  if (clips) {
    pairs.merge(all_reduce_pairs(cluster.all_reduce, all_devices(placement)));
  }
  return pairs;
}

/// The costs of every stage on each of its devices.
template <typename Scale>
void add_stages(CostModel& costs,
                const std::vector<StageSums>& sums,
                const Placement& placement,
                const StageCostRequest& request,
                const ir::Cluster& cluster,
                const StageGraph& graph,
                const Scale& scale) {
  const Nanos norms =
      request.clips ? all_reduce_time(cluster.all_reduce, costs, all_devices(placement), kNormBytes)
                    : 0;
  for (size_t k = 0; k < sums.size(); ++k) {
    const Nanos all_reduce =
        all_reduce_time(cluster.all_reduce, costs, placement[k], sums[k].parameters);
    for (const DeviceId device : placement[k]) {
      StageCosts here = costs_of(sums[k], cluster.devices[index_of(device)], request, scale);
      here.all_reduce = all_reduce;
      if (request.clips) {
        here.clip_norm = capped_sum(
            norms, memory_time(cluster.devices[index_of(device)],
                               capped_product(sums[k].parameters, kCopiesTouchedByClip)));
      }
      for (const StageTie& tie : graph.ties) {
        if (index_of(tie.first) == k || index_of(tie.second) == k) {
          here.sum_tied = std::max(
              here.sum_tied,
              all_reduce_time(cluster.all_reduce, costs, tied_devices(tie, placement), tie.bytes));
        }
      }
      if (device == placement[k].front()) {
        costs.stages.push_back(here);
      } else if (here != costs.stages.back()) {
        costs.replicas.push_back({StageId(static_cast<std::uint16_t>(k)), device, here});
      }
    }
  }
  std::ranges::sort(costs.replicas, {},
                    [](const ReplicaCosts& r) { return std::pair(r.stage, r.device); });
}

/// What the devices add to tasks of their own, where any of them does.
void add_devices(CostModel& costs, const ir::Cluster& cluster) {
  const bool launches = std::ranges::any_of(
      cluster.devices, [](const ir::DeviceSpec& device) { return device.launch_overhead != 0; });
  const bool slows = std::ranges::any_of(
      cluster.devices, [](const ir::DeviceSpec& device) { return device.overlap_slowdown != 1.0; });
  for (const ir::DeviceSpec& device : cluster.devices) {
    if (launches) {
      costs.launch_overhead.push_back(device.launch_overhead);
    }
    if (slows) {
      costs.overlap_slowdown.push_back(device.overlap_slowdown);
    }
  }
}

/// Whether a time does not fit, or a size is so large (1 PiB) that sums over micro-batches might
/// not.
bool is_too_large(const StagedModel& model) {
  constexpr Bytes kLargestBytes = Bytes{1} << 50;
  const bool link = std::ranges::any_of(model.graph.links,
                                        [](const StageLink& l) { return l.bytes > kLargestBytes; });
  const auto is_large = [](const StageCosts& s) {
    const Nanos longest =
        std::max({s.forward, capped_sum(s.backward_input, s.backward_weight), s.step, s.predict,
                  s.stash, s.all_reduce, s.sum_tied, s.clip_norm});
    const Bytes largest =
        std::max({s.parameter_bytes, s.optimizer_bytes, s.prediction_bytes, s.saved_bytes,
                  s.saved_for_weight_bytes, s.kept_bytes, s.recomputed_bytes, s.workspace_bytes});
    return longest == kTooLarge || largest > kLargestBytes;
  };
  return link || std::ranges::any_of(model.costs.stages, is_large) ||
         std::ranges::any_of(model.costs.replicas, is_large, &ReplicaCosts::costs);
}

/// What is priced by bytes over the memory's bandwidth.
std::string_view free_work(const StageCostRequest& request, bool has_measured_steps) {
  if (has_measured_steps) {
    return request.clips ? "predictions, stash copies and clips" : "predictions and stash copies";
  }
  return request.clips ? "predictions, steps, stash copies and clips"
                       : "predictions, steps and stash copies";
}

std::vector<std::string> notes_of(const ir::Profile& profile,
                                  const StageCostRequest& request,
                                  const Placement& placement,
                                  const ir::Cluster& cluster) {
  std::vector<std::string> notes;
  const bool measured =
      std::ranges::any_of(sums_by_stage(profile, request.layers_per_stage), has_measured_step);
  if (measured) {
    notes.push_back("steps take the profile's update times, whatever --optimizer says");
  }
  if (std::uint64_t{request.batch_size} != std::uint64_t{profile.samples} * request.micro_batches) {
    notes.push_back("costs are linear in samples: a mini-batch of " +
                    std::to_string(request.batch_size) +
                    " is cut into T micro-batches, the profile was taken with " +
                    std::to_string(profile.samples));
  }
  std::set<DeviceId> used;
  for (const std::vector<DeviceId>& replicas : placement) {
    used.insert(replicas.begin(), replicas.end());
  }
  std::set<DeviceId> without;
  for (const DeviceId device : used) {
    if (!cluster.devices[index_of(device)].memory_bandwidth_bytes_per_s.has_value()) {
      without.insert(device);
    }
  }
  if (!without.empty()) {
    std::string list;
    for (const DeviceId device : without) {
      list += (list.empty() ? "" : ", ") + std::to_string(index_of(device));
    }
    const bool all = without == used;
    notes.push_back(std::string(free_work(request, measured)) + " are free on " +
                    (all ? "every device" : "device " + list) +
                    ": no memory_bandwidth_bytes_per_s");
  }
  if (std::ranges::any_of(placement, [](const auto& replicas) { return replicas.size() > 1; })) {
    notes.push_back("all-reduces take the time of a " +
                    std::string(ir::all_reduce_name(cluster.all_reduce)) +
                    " and no link from other transfers");
  }
  if (profile.data_loading > 0) {
    notes.push_back("data loading is left out: " + std::to_string(profile.data_loading / 1000) +
                    " us for " + std::to_string(profile.samples) + " samples");
  }
  return notes;
}

}  // namespace

ir::Result<StagedModel> stage_costs(const ir::Profile& profile,
                                    const StageCostRequest& request,
                                    const ir::Cluster& cluster) {
  if (ir::Status status = check_request(profile, request, cluster); !status.ok()) {
    return status.error();
  }
  const Placement placement = placement_of(request);
  const std::uint64_t parts = std::uint64_t{request.micro_batches} * profile.samples;
  const auto scale = [&](std::int64_t sum, double speed) {
    return sum == kTooLarge ? kTooLarge : scale_half_up(sum, request.batch_size, parts, speed);
  };

  StagedModel model;
  model.graph = graph_of(profile, request.layers_per_stage);
  for (StageLink& link : model.graph.links) {
    link.bytes = scale(link.bytes, 1.0);
  }
  if (ir::Status links =
          set_links(model.costs, pairs_of(model.graph, placement, cluster, request.clips), cluster);
      !links.ok()) {
    return links.error();
  }
  add_stages(model.costs, sums_by_stage(profile, request.layers_per_stage), placement, request,
             cluster, model.graph, scale);
  add_devices(model.costs, cluster);
  model.costs.task_overhead = request.task_overhead;
  model.costs.notes = notes_of(profile, request, placement, cluster);
  if (is_too_large(model)) {
    return ir::make_error(
        ir::ErrorKind::Usage, "too-large", "profile",
        "a stage takes over 2^63 ns or a size is over 1 PiB; check the units of the "
        "profile, --batch-size and the device's speed");
  }
  return model;
}

ir::Cluster uniform_cluster(std::uint32_t devices, const ir::LinkSpec& link) {
  ir::Cluster cluster;
  cluster.name = "uniform";
  for (std::uint32_t d = 0; d < devices; ++d) {
    cluster.devices.push_back({.name = "device " + std::to_string(d),
                               .speed = 1.0,
                               .memory_bytes = {},
                               .memory_bandwidth_bytes_per_s = {}});
  }
  cluster.default_link = link;
  return cluster;
}

}  // namespace xpipe::scheduler
