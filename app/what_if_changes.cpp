#include "app/what_if_changes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/cluster.h"

namespace xpipe::app {

namespace {

using ir::DeviceId;
using ir::index_of;
using ir::Nanos;
using DevicePair = std::pair<DeviceId, DeviceId>;

Nanos faster(Nanos time, double factor) {
  return static_cast<Nanos>(std::floor(static_cast<double>(time) / factor + 0.5));
}

void speed_up_passes(scheduler::StageCosts& stage, double factor) {
  const Nanos backward = faster(stage.backward_input + stage.backward_weight, factor);
  stage.forward = faster(stage.forward, factor);
  stage.backward_input = std::min(faster(stage.backward_input, factor), backward);
  stage.backward_weight = backward - stage.backward_input;
}

void make_faster(ir::LinkSpec& link, double factor) {
  if (link.bandwidth_bytes_per_s.has_value()) {
    *link.bandwidth_bytes_per_s *= factor;
  }
  link.latency = faster(link.latency, factor);
}

bool is_pass(ir::TaskKind kind) {
  switch (kind) {
    case ir::TaskKind::Forward:
    case ir::TaskKind::Backward:
    case ir::TaskKind::BackwardInput:
    case ir::TaskKind::BackwardWeight:
    case ir::TaskKind::Recompute:
      return true;
    case ir::TaskKind::Predict:
    case ir::TaskKind::Step:
    case ir::TaskKind::Stash:
    case ir::TaskKind::Release:
    case ir::TaskKind::Send:
    case ir::TaskKind::Receive:
    case ir::TaskKind::AllReduce:
    case ir::TaskKind::SumTied:
    case ir::TaskKind::ClipNorm:
      return false;
  }
  return false;
}

class Changes {
 public:
  Changes(const WhatIfBase& base, double factor)
      : schedule_(base.schedule), base_(base), factor_(factor) {}

  std::vector<Change> take() && {
    add_devices();
    add_stages();
    add_links();
    add_shared_links();
    add_kinds();
    return std::move(changes_);
  }

 private:
  using EditCluster = std::function<void(ir::Cluster&)>;
  using EditCosts = std::function<void(scheduler::CostModel&)>;
  using OnPath = std::function<Nanos(const PathPart&, Nanos)>;

  void add(WhatIfTarget target, std::string name, EditCluster edit, OnPath on_path) {
    changes_.push_back({target, std::move(name), std::move(edit), {}, std::move(on_path)});
  }

  void add(WhatIfTarget target, std::string name, EditCosts edit, OnPath on_path) {
    changes_.push_back({target, std::move(name), {}, std::move(edit), std::move(on_path)});
  }

  /// The stages with a pass on each compute lane, by device.
  [[nodiscard]] std::map<DeviceId, std::set<ir::StageId>> stages_by_device() const {
    std::map<DeviceId, std::set<ir::StageId>> stages;
    for (const ir::Lane& lane : schedule_.lanes) {
      for (const ir::TaskId id : lane.order) {
        if (is_pass(schedule_.task(id).kind())) {
          stages[lane.device].insert(schedule_.task(id).stage);
        }
      }
    }
    return stages;
  }

  void add_devices() {
    for (const auto& [device, stages] : stages_by_device()) {
      std::vector<std::uint32_t> numbers;
      for (const ir::StageId stage : stages) {
        numbers.push_back(index_of(stage));
      }
      add(WhatIfTarget::Device,
          fmt::format("device {} (stage{} {})", index_of(device), numbers.size() == 1 ? "" : "s",
                      fmt::join(numbers, ", ")),
          EditCluster([device = device, f = factor_](ir::Cluster& cluster) {
            cluster.devices[index_of(device)].speed *= f;
          }),
          [device = device](const PathPart& part, Nanos time) {
            return is_pass(part.task.kind()) && part.lane.device == device ? time : 0;
          });
    }
  }

  /// Stages that share a device with others, or have several.
  void add_stages() {
    const auto by_device = stages_by_device();
    std::map<ir::StageId, std::uint32_t> devices_of;
    std::set<ir::StageId> sharing;
    for (const auto& [device, stages] : by_device) {
      for (const ir::StageId stage : stages) {
        if (++devices_of[stage] > 1 || stages.size() > 1) {
          sharing.insert(stage);
        }
      }
    }
    for (const ir::StageId stage : sharing) {
      add(WhatIfTarget::Stage, fmt::format("stage {}", index_of(stage)),
          EditCosts([stage, f = factor_](scheduler::CostModel& costs) {
            speed_up_passes(costs.stages[index_of(stage)], f);
            for (scheduler::ReplicaCosts& replica : costs.replicas) {
              if (replica.stage == stage) {
                speed_up_passes(replica.costs, f);
              }
            }
          }),
          [stage](const PathPart& part, Nanos time) {
            return is_pass(part.task.kind()) && part.task.stage == stage ? time : 0;
          });
    }
  }

  /// The entry of the cluster's links that `pair` goes over; nullopt: the default link.
  [[nodiscard]] std::optional<std::size_t> entry_of(const DevicePair& pair) const {
    const std::vector<ir::Link>& links = base_.workload.cluster.links;
    for (std::size_t i = 0; i < links.size(); ++i) {
      const DevicePair there{links[i].from, links[i].to};
      if (there == pair || (links[i].symmetric && there == DevicePair{pair.second, pair.first})) {
        return i;
      }
    }
    return std::nullopt;
  }

  /// The shared links on the way of `pair`, in order.
  [[nodiscard]] std::vector<ir::SharedLinkId> via_of(const DevicePair& pair) const {
    const ir::Cluster& cluster = base_.workload.cluster;
    const std::optional<std::size_t> entry = entry_of(pair);
    std::vector<ir::SharedLinkId> via =
        entry.has_value() ? cluster.links[*entry].via : cluster.default_via;
    // A symmetric link is crossed the other way round on its way back, the default link by whoever
    // sends to a lower device.
    if (entry.has_value() ? cluster.links[*entry].from != pair.first : pair.first > pair.second) {
      std::ranges::reverse(via);
    }
    return via;
  }

  /// The default link between `pairs`, as entries; none where there is no default link.
  [[nodiscard]] std::vector<ir::Link> default_links(const std::set<DevicePair>& pairs) const {
    std::vector<ir::Link> links;
    const ir::Cluster& cluster = base_.workload.cluster;
    for (const DevicePair& pair : pairs) {
      if (cluster.default_link.has_value()) {
        links.push_back({.from = pair.first,
                         .to = pair.second,
                         .symmetric = false,
                         .spec = *cluster.default_link,
                         .via = via_of(pair)});
      }
    }
    return links;
  }

  void add_shared_links() {
    std::map<ir::SharedLinkId, std::set<DevicePair>> used;
    for (const scheduler::LinkCosts& link : base_.costs.links) {
      for (const ir::SharedLinkId shared : via_of({link.from, link.to})) {
        used[shared].insert({link.from, link.to});
      }
    }
    for (const auto& [id, pairs] : used) {
      add(WhatIfTarget::SharedLink,
          "shared link " + base_.workload.cluster.shared_links[index_of(id)].name,
          EditCluster([id = id, f = factor_](ir::Cluster& cluster) {
            make_faster(cluster.shared_links[index_of(id)].spec, f);
          }),
          on_links(pairs));
    }
  }

  /// What the path spends on transfers between `pairs`, latency included.
  [[nodiscard]] static std::function<Nanos(const PathPart&, Nanos)> on_links(
      std::set<DevicePair> pairs) {
    return [pairs = std::move(pairs)](const PathPart& part, Nanos time) {
      return part.lane.kind == ir::LaneKind::Send &&
                     pairs.contains({part.lane.device, part.lane.peer})
                 ? time
                 : 0;
    };
  }

  /// One change for each entry of the cluster and, of the default link, for each pair of devices.
  void add_links() {
    std::map<std::pair<DevicePair, std::optional<std::size_t>>, std::set<DevicePair>> groups;
    for (const scheduler::LinkCosts& link : base_.costs.links) {
      groups[{std::minmax(link.from, link.to), entry_of({link.from, link.to})}].insert(
          {link.from, link.to});
    }
    for (const auto& [key, pairs] : groups) {
      const DevicePair first = *pairs.begin();
      const char* arrow = pairs.size() > 1 ? "<>" : ">";
      add(WhatIfTarget::Link,
          fmt::format("link {}{}{}", index_of(first.first), arrow, index_of(first.second)),
          EditCluster([entry = key.second, listed = default_links(pairs),
                       f = factor_](ir::Cluster& cluster) {
            if (entry.has_value()) {
              make_faster(cluster.links[*entry].spec, f);
              return;
            }
            for (ir::Link link : listed) {
              make_faster(link.spec, f);
              cluster.links.push_back(std::move(link));
            }
          }),
          on_links(pairs));
    }
  }

  template <typename Edit>
  [[nodiscard]] EditCluster every_link(Edit edit) const {
    return [edit](ir::Cluster& cluster) {
      for (ir::Link& link : cluster.links) {
        edit(link.spec);
      }
      if (cluster.default_link.has_value()) {
        edit(*cluster.default_link);
      }
      for (ir::SharedLink& shared : cluster.shared_links) {
        edit(shared.spec);
      }
    };
  }

  void add_kinds() {
    const double f = factor_;
    const auto& links = base_.costs.links;
    const bool several = links.size() > 2;
    if (several && std::ranges::any_of(links, [](const scheduler::LinkCosts& link) {
          return link.spec.bandwidth_bytes_per_s.has_value();
        })) {
      add(WhatIfTarget::Bandwidth, "bandwidth of every link",
          EditCluster(every_link([f](ir::LinkSpec& link) {
            if (link.bandwidth_bytes_per_s.has_value()) {
              *link.bandwidth_bytes_per_s *= f;
            }
          })),
          [](const PathPart& part, Nanos time) {
            return part.lane.kind == ir::LaneKind::Send && !part.in_flight ? time : 0;
          });
    }
    if (several && std::ranges::any_of(links, [](const scheduler::LinkCosts& link) {
          return link.spec.latency > 0;
        })) {
      add(WhatIfTarget::Latency, "latency of every link",
          EditCluster(
              every_link([f](ir::LinkSpec& link) { link.latency = faster(link.latency, f); })),
          [](const PathPart& part, Nanos time) { return part.in_flight ? time : 0; });
    }
    if (std::ranges::any_of(base_.workload.cluster.devices, [](const ir::DeviceSpec& device) {
          return device.memory_bandwidth_bytes_per_s.has_value();
        })) {
      add(WhatIfTarget::MemoryBandwidth,
          "memory bandwidth of every device (steps, predictions, stashes)",
          EditCluster([f](ir::Cluster& cluster) {
            for (ir::DeviceSpec& device : cluster.devices) {
              if (device.memory_bandwidth_bytes_per_s.has_value()) {
                *device.memory_bandwidth_bytes_per_s *= f;
              }
            }
          }),
          [](const PathPart& part, Nanos time) {
            return part.lane.kind == ir::LaneKind::Compute && !is_pass(part.task.kind()) ? time : 0;
          });
    }
    add_overhead();
  }

  void add_overhead() {
    const scheduler::CostModel& costs = base_.costs;
    if (costs.task_overhead == 0 &&
        std::ranges::all_of(costs.launch_overhead, [](Nanos ns) { return ns == 0; })) {
      return;
    }
    add(WhatIfTarget::TaskOverhead, "overhead of every task",
        EditCosts([f = factor_](scheduler::CostModel& changed) {
          changed.task_overhead = faster(changed.task_overhead, f);
          for (Nanos& launch : changed.launch_overhead) {
            launch = faster(launch, f);
          }
        }),
        [&costs](const PathPart& part, Nanos time) {
          if (part.lane.kind != ir::LaneKind::Compute) {
            return Nanos{0};
          }
          const std::size_t device = index_of(part.lane.device);
          const Nanos launch =
              device < costs.launch_overhead.size() ? costs.launch_overhead[device] : 0;
          return std::min(time, costs.task_overhead + launch);
        });
  }

  const ir::Schedule& schedule_;
  const WhatIfBase& base_;
  double factor_;
  std::vector<Change> changes_;
};

}  // namespace

ir::Result<scheduler::CostModel> costs_with(const Change& change, const WhatIfBase& base) {
  if (change.edit_costs) {
    scheduler::CostModel costs = base.costs;
    change.edit_costs(costs);
    return costs;
  }
  Workload changed = base.workload;
  change.edit_cluster(changed.cluster);
  ir::Result<scheduler::StagedModel> model = base.model_of(changed);
  if (!model.ok()) {
    return model.error();
  }
  return std::move(model).value().costs;
}

std::vector<Change> changes_of(const WhatIfBase& base, double factor) {
  return Changes(base, factor).take();
}

}  // namespace xpipe::app
