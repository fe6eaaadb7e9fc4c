#include "app/plan_limits.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "scheduler/link_model.h"

namespace xpipe::app {

namespace {

using ir::index_of;

/// A device or link that is busy for so much of the time decides it.
constexpr double kDecides = 0.97;
constexpr double kNoticed = 0.001;

struct Busiest {
  std::string name;
  double share = 0.0;
  std::size_t device = 0;
};

/// By stage: replicas share its mini-batches, and over a short run not evenly.
Busiest busiest_device(const Candidate& plan, double time) {
  Busiest busiest;
  for (std::size_t k = 0; k < plan.workload.placement.size(); ++k) {
    const std::vector<ir::DeviceId>& devices = plan.workload.placement[k];
    double busy = 0.0;
    for (const ir::DeviceId device : devices) {
      busy += static_cast<double>(plan.metrics.devices[index_of(device)].busy);
    }
    const double share = busy / static_cast<double>(devices.size()) / plan.run.mini_batches / time;
    if (share > busiest.share) {
      const std::size_t first = index_of(devices.front());
      busiest = {devices.size() == 1 ? fmt::format("stage {} (device {})", k, first)
                                     : fmt::format("stage {} (devices {} to {})", k, first,
                                                   index_of(devices.back())),
                 share, first};
    }
  }
  return busiest;
}

/// Single directions of links, and channels with all that crosses them.
Busiest busiest_link(const Candidate& plan, double time) {
  const scheduler::CostModel& costs = plan.model.costs;
  std::vector<double> channels(costs.channels.size(), 0.0);
  Busiest busiest;
  const auto offer = [&busiest](std::string name, double share) {
    if (share > busiest.share) {
      busiest = {std::move(name), share};
    }
  };
  for (const simulator::LinkUse& use : plan.metrics.links) {
    const double share = static_cast<double>(use.busy) / plan.run.mini_batches / time;
    offer(fmt::format("link {}>{}", index_of(use.from), index_of(use.to)), share);
    if (const auto* link = scheduler::find_link_costs(costs, use.from, use.to)) {
      for (const scheduler::ChannelId channel : link->channels) {
        channels[index_of(channel)] += share;
      }
    }
  }
  for (std::size_t c = 0; c < channels.size(); ++c) {
    offer(fmt::format("link {}", costs.channels[c].name), channels[c]);
  }
  return busiest;
}

/// The share of idle time that the policy promises however long the run; nothing where it only
/// idles at the ends.
std::optional<double> lasting_bubble(const Candidate& plan) {
  constexpr std::uint32_t kLong = 100'000;
  constexpr double kNoticeable = 0.001;
  const auto options = scheduler::resolve_options(*plan.run.policy, plan.run.options);
  if (!options.ok()) {
    return std::nullopt;
  }
  const scheduler::Promises promises =
      plan.run.policy->promises({.stages = plan.workload.stages,
                                 .micro_batches = plan.micro_batches,
                                 .mini_batches = kLong,
                                 .options = options.value()});
  const double share = static_cast<double>(promises.bubble_numerator) /
                       static_cast<double>(promises.bubble_denominator);
  return share > kNoticeable ? std::optional(share) : std::nullopt;
}

/// The mini-batch's compute at speed 1 over the speeds of the devices that share it.
std::optional<double> ideal_rate(const Candidate& plan) {
  double work = 0.0;
  double speed = 0.0;
  for (std::size_t k = 0; k < plan.model.costs.stages.size(); ++k) {
    const scheduler::StageCosts& stage = plan.model.costs.stages[k];
    const std::vector<ir::DeviceId>& devices = plan.workload.placement[k];
    work += static_cast<double>(stage.forward + stage.backward_input + stage.backward_weight) *
            plan.workload.cluster.devices[index_of(devices.front())].speed * plan.micro_batches;
    for (const ir::DeviceId device : devices) {
      speed += plan.workload.cluster.devices[index_of(device)].speed;
    }
  }
  if (work <= 0.0) {
    return std::nullopt;
  }
  return plan.workload.samples_per_mini_batch(plan.run.micro_batches) * 1e9 / (work / speed);
}

}  // namespace

std::string limit_name(LimitKind kind) {
  switch (kind) {
    case LimitKind::Compute:
      return "compute";
    case LimitKind::Transfer:
      return "transfer";
    case LimitKind::Waiting:
      return "waiting";
  }
  return "";
}

PlanLimit limit_of(const Candidate& plan) {
  PlanLimit limit;
  limit.ideal_samples_per_s = ideal_rate(plan);
  const double time = plan.ns_per_mini_batch();
  if (time <= 0.0) {
    limit.text = "nothing takes time";
    return limit;
  }
  const Busiest device = busiest_device(plan, time);
  const Busiest link = busiest_link(plan, time);
  limit.busy_share = std::max(device.share, link.share);
  if (device.share >= kDecides && device.share >= link.share) {
    limit.kind = LimitKind::Compute;
    limit.text = fmt::format(
        "{} computes {:.1f} % of the time: a faster device there, or fewer "
        "layers, would help",
        device.name, 100 * device.share);
  } else if (link.share >= kDecides) {
    limit.kind = LimitKind::Transfer;
    limit.text = fmt::format(
        "{} is busy {:.1f} % of the time; the busiest device, {}, computes "
        "{:.1f} %",
        link.name, 100 * link.share, device.name, 100 * device.share);
  } else {
    const double exposed =
        static_cast<double>(plan.metrics.devices[device.device].exposed_communication) /
        plan.run.mini_batches / time;
    limit.text = fmt::format(
        "{}, the busiest, computes {:.1f} % of the time{}; the rest is waiting, {:.1f} % for "
        "messages on their way",
        device.name, 100 * device.share,
        link.share >= kNoticed ? fmt::format(", {} is busy {:.1f} %", link.name, 100 * link.share)
                               : "",
        100 * exposed);
    if (const auto bubble = lasting_bubble(plan)) {
      limit.text += fmt::format(
          "; {} drains after every mini-batch, which on equal stages leaves "
          "{:.1f} % idle",
          plan.run.policy->name, 100 * *bubble);
    }
  }
  return limit;
}

std::vector<StageTransfer> transfers_of(const Candidate& plan) {
  std::vector<StageTransfer> transfers(plan.model.costs.stages.size());
  for (const scheduler::StageLink& link : plan.model.graph.links) {
    StageTransfer& transfer = transfers[index_of(link.from)];
    transfer.bytes += std::max<ir::Bytes>(0, link.bytes);
    for (const ir::DeviceId a : plan.workload.placement[index_of(link.from)]) {
      for (const ir::DeviceId b : plan.workload.placement[index_of(link.to)]) {
        for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
          if (const ir::LinkSpec* spec = scheduler::find_link(plan.model.costs, from, to)) {
            transfer.time = std::max(transfer.time, scheduler::transfer_time(*spec, link.bytes));
          }
        }
      }
    }
  }
  return transfers;
}

std::vector<ir::Nanos> stage_times(const Candidate& plan) {
  const scheduler::CostModel& costs = plan.model.costs;
  std::vector<ir::Nanos> times;
  for (std::size_t k = 0; k < costs.stages.size(); ++k) {
    const scheduler::StageCosts& stage = costs.stages[k];
    const std::size_t device = index_of(plan.workload.placement[k].front());
    const ir::Nanos launch =
        costs.task_overhead + (costs.launch_overhead.empty() ? 0 : costs.launch_overhead[device]);
    const bool recomputes = plan.workload.passes.recompute != scheduler::Recompute::None;
    times.push_back((recomputes ? 2 : 1) * stage.forward + stage.backward_input +
                    stage.backward_weight + (recomputes ? 3 : 2) * launch);
  }
  return times;
}

ir::Nanos bottleneck_of(const Candidate& plan) {
  ir::Nanos slowest = 0;
  const std::vector<ir::Nanos> times = stage_times(plan);
  for (std::size_t k = 0; k < times.size(); ++k) {
    slowest = std::max(slowest, times[k] / plan.cut.replicas[k]);
  }
  for (const StageTransfer& transfer : transfers_of(plan)) {
    slowest = std::max(slowest, transfer.time);
  }
  return slowest;
}

}  // namespace xpipe::app
