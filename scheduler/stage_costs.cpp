#include "scheduler/stage_costs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "scheduler/rounding.h"

namespace xpipe::scheduler {

namespace {

using ir::Bytes;
using ir::DeviceId;
using ir::index_of;
using ir::Nanos;
using ir::StageId;
using std::size_t;

constexpr std::uint32_t kNanosPerSecond = 1'000'000'000;

/// A sum that stays at kTooLarge once it does not fit.
std::int64_t capped_sum(std::int64_t a, std::int64_t b) {
  return b > kTooLarge - a ? kTooLarge : a + b;
}

std::int64_t capped_product(std::int64_t a, std::uint32_t b) {
  return scale_half_up(a, b, 1, 1.0);
}

/// The sums over one stage's layers, for the profile's samples.
struct StageSums {
  Nanos forward = 0;
  Nanos backward_input = 0;
  Nanos backward = 0;
  Bytes saved = 0;
  Bytes saved_for_weight = 0;
  Bytes parameters = 0;
};

std::vector<StageId> stage_of_layers(const Partition& layers_per_stage) {
  std::vector<StageId> stage_of;
  for (size_t k = 0; k < layers_per_stage.size(); ++k) {
    stage_of.insert(stage_of.end(), layers_per_stage[k], StageId(static_cast<std::uint16_t>(k)));
  }
  return stage_of;
}

std::vector<StageSums> sums_by_stage(const ir::Profile& profile,
                                     const std::vector<StageId>& stage_of,
                                     size_t stages) {
  std::vector<StageSums> sums(stages);
  for (size_t l = 0; l < profile.layers.size(); ++l) {
    const ir::LayerProfile& layer = profile.layers[l];
    StageSums& s = sums[index_of(stage_of[l])];
    s.forward = capped_sum(s.forward, layer.forward);
    s.backward_input = capped_sum(s.backward_input, layer.backward_input);
    s.backward = capped_sum(s.backward, capped_sum(layer.backward_input, layer.backward_weight));
    s.saved = capped_sum(s.saved, layer.saved_bytes);
    s.saved_for_weight = capped_sum(s.saved_for_weight, layer.saved_for_weight_bytes);
    s.parameters = capped_sum(s.parameters, layer.parameter_bytes);
  }
  return sums;
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
  const size_t placed = request.placement.empty() ? stages : request.placement.size();
  for (size_t k = 0; k < placed; ++k) {
    const size_t device = request.placement.empty() ? k : index_of(request.placement[k]);
    if (device >= cluster.devices.size()) {
      fault("placement", "stage " + std::to_string(k),
            "is placed on device " + std::to_string(device) + ", the cluster has " +
                std::to_string(cluster.devices.size()) +
                " devices; use fewer stages, a larger cluster or --placement");
    }
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  return {};
}

/// bytes over the device's memory bandwidth; free where that is not known.
Nanos memory_time(const ir::DeviceSpec& device, Bytes bytes) {
  return device.memory_bandwidth_bytes_per_s.has_value()
             ? scale_half_up(bytes, kNanosPerSecond, 1, *device.memory_bandwidth_bytes_per_s)
             : 0;
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
  costs.parameter_bytes = sums.parameters;
  const auto copies = [&sums](std::uint32_t count) {
    return capped_product(sums.parameters, count);
  };
  costs.optimizer_bytes = copies(optimizer_copies(request.optimizer));
  costs.prediction_bytes =
      copies(copies_kept_for_predict(request.optimizer, request.extrapolation));
  costs.step = memory_time(device, copies(copies_touched_by_step(request.optimizer)));
  costs.predict = memory_time(
      device, copies(copies_touched_by_predict(request.optimizer, request.extrapolation)));
  costs.stash = memory_time(device, copies(kCopiesTouchedByStash));
  return costs;
}

/// What each stage hands each later one: every layer's output once per stage that uses it.
template <typename Scale>
StageGraph graph_of(const ir::Profile& profile,
                    const std::vector<StageId>& stage_of,
                    size_t stages,
                    const Scale& scale) {
  std::set<std::pair<std::uint32_t, StageId>> tensors;  // (layer, the stage it is sent to)
  for (const ir::LayerEdge& edge : profile.edges) {
    if (stage_of[edge.from] != stage_of[edge.to]) {
      tensors.emplace(edge.from, stage_of[edge.to]);
    }
  }
  std::map<std::pair<StageId, StageId>, Bytes> sums;
  for (const auto& [layer, to] : tensors) {
    Bytes& sum = sums[{stage_of[layer], to}];
    sum = capped_sum(sum, profile.layers[layer].output_bytes);
  }
  StageGraph graph{.stages = static_cast<std::uint32_t>(stages), .links = {}};
  for (const auto& [pair, bytes] : sums) {
    graph.links.push_back({pair.first, pair.second, scale(bytes, 1.0)});
  }
  return graph;
}

const ir::LinkSpec* link_in(const ir::Cluster& cluster, DeviceId from, DeviceId to) {
  for (const ir::Link& link : cluster.links) {
    if ((link.from == from && link.to == to) ||
        (link.symmetric && link.from == to && link.to == from)) {
      return &link.spec;
    }
  }
  return cluster.default_link.has_value() ? &*cluster.default_link : nullptr;
}

/// The links of all pairs of devices that exchange tensors, both directions.
ir::Result<std::vector<LinkCosts>> links_of(const StageGraph& graph,
                                            const std::vector<DeviceId>& device_of,
                                            const ir::Cluster& cluster) {
  std::set<std::pair<DeviceId, DeviceId>> pairs;
  for (const StageLink& link : graph.links) {
    const DeviceId from = device_of[index_of(link.from)];
    const DeviceId to = device_of[index_of(link.to)];
    if (from != to) {
      pairs.emplace(from, to);
      pairs.emplace(to, from);
    }
  }
  std::vector<LinkCosts> links;
  ir::Error error{.kind = ir::ErrorKind::BadInput, .diagnostics = {}};
  for (const auto& [from, to] : pairs) {
    if (const ir::LinkSpec* spec = link_in(cluster, from, to)) {
      links.push_back({from, to, *spec});
    } else {
      error.diagnostics.push_back(
          {"no-link", "link " + std::to_string(index_of(from)) + ">" + std::to_string(index_of(to)),
           "stages on these devices exchange tensors and cluster \"" + cluster.name +
               "\" lists no such link; add it to links, or a default_link"});
    }
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  return links;
}

/// Whether a time does not fit, or a size is so large (1 PiB) that sums over micro-batches might
/// not.
bool is_too_large(const StagedModel& model) {
  constexpr Bytes kLargestBytes = Bytes{1} << 50;
  const bool link = std::ranges::any_of(model.graph.links,
                                        [](const StageLink& l) { return l.bytes > kLargestBytes; });
  return link || std::ranges::any_of(model.costs.stages, [](const StageCosts& s) {
           const Nanos longest =
               std::max({s.forward, capped_sum(s.backward_input, s.backward_weight), s.step,
                         s.predict, s.stash});
           const Bytes largest = std::max({s.parameter_bytes, s.optimizer_bytes, s.prediction_bytes,
                                           s.saved_bytes, s.saved_for_weight_bytes});
           return longest == kTooLarge || largest > kLargestBytes;
         });
}

std::vector<std::string> notes_of(const ir::Profile& profile,
                                  const StageCostRequest& request,
                                  const std::vector<DeviceId>& device_of,
                                  const ir::Cluster& cluster) {
  std::vector<std::string> notes;
  if (std::uint64_t{request.batch_size} != std::uint64_t{profile.samples} * request.micro_batches) {
    notes.push_back("costs are linear in samples: a mini-batch of " +
                    std::to_string(request.batch_size) +
                    " is cut into T micro-batches, the profile was taken with " +
                    std::to_string(profile.samples));
  }
  std::set<DeviceId> without;
  for (const DeviceId device : device_of) {
    const ir::DeviceSpec& spec = cluster.devices[index_of(device)];
    if (!spec.memory_bandwidth_bytes_per_s.has_value()) {
      without.insert(device);
    }
  }
  if (!without.empty()) {
    std::string list;
    for (const DeviceId device : without) {
      list += (list.empty() ? "" : ", ") + std::to_string(index_of(device));
    }
    const bool all = without == std::set<DeviceId>(device_of.begin(), device_of.end());
    notes.push_back("predictions, steps and stash copies are free on " +
                    (all ? "every device" : "device " + list) +
                    ": no memory_bandwidth_bytes_per_s");
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
  const size_t stages = request.layers_per_stage.size();
  std::vector<DeviceId> device_of = request.placement;
  for (size_t k = device_of.size(); k < stages; ++k) {
    device_of.push_back(DeviceId(static_cast<std::uint16_t>(k)));
  }
  const std::uint64_t parts = std::uint64_t{request.micro_batches} * profile.samples;
  const auto scale = [&](std::int64_t sum, double speed) {
    return sum == kTooLarge ? kTooLarge : scale_half_up(sum, request.batch_size, parts, speed);
  };

  StagedModel model;
  const std::vector<StageId> stage_of = stage_of_layers(request.layers_per_stage);
  const std::vector<StageSums> sums = sums_by_stage(profile, stage_of, stages);
  for (size_t k = 0; k < stages; ++k) {
    const ir::DeviceSpec& device = cluster.devices[index_of(device_of[k])];
    model.costs.stages.push_back(costs_of(sums[k], device, request, scale));
  }
  model.graph = graph_of(profile, stage_of, stages, scale);
  ir::Result<std::vector<LinkCosts>> links = links_of(model.graph, device_of, cluster);
  if (!links.ok()) {
    return links.error();
  }
  model.costs.links = std::move(links).value();
  add_half_duplex_channels(model.costs);
  model.costs.task_overhead = request.task_overhead;
  model.costs.notes = notes_of(profile, request, device_of, cluster);
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
