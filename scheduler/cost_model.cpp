#include "scheduler/cost_model.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "ir/task.h"
#include "scheduler/rounding.h"

namespace xpipe::scheduler {

namespace {

using ir::DeviceId;
using ir::index_of;
using ir::Nanos;
using std::size_t;

std::string pair_text(DeviceId from, DeviceId to) {
  return std::to_string(index_of(from)) + ">" + std::to_string(index_of(to));
}

/// The link of a send or receive lane, in the direction in which the bytes go.
const ir::LinkSpec& link_of(const CostModel& costs, const ir::Lane& lane) {
  const bool sends = lane.kind == ir::LaneKind::Send;
  const DeviceId from = sends ? lane.device : lane.peer;
  const DeviceId to = sends ? lane.peer : lane.device;
  const ir::LinkSpec* link = find_link(costs, from, to);
  XPIPE_CHECK(link != nullptr) << "no link " << pair_text(from, to) << "; see check_costs()";
  return *link;
}

/// What the task's own work takes, the overhead of its lane left out.
Nanos work(const CostModel& costs, const ir::Schedule& schedule, const ir::Task& task) {
  const StageCosts& stage = costs_on(costs, task.stage, schedule.lane(task.lane).device);
  switch (task.kind()) {
    case ir::TaskKind::Forward:
    case ir::TaskKind::Recompute:
      return stage.forward;
    case ir::TaskKind::Backward:
      return stage.backward_input + stage.backward_weight;
    case ir::TaskKind::BackwardInput:
      return stage.backward_input;
    case ir::TaskKind::BackwardWeight:
      return stage.backward_weight;
    case ir::TaskKind::Predict:
      return stage.predict;
    case ir::TaskKind::Step:
      return stage.step;
    case ir::TaskKind::Stash:
      return stage.stash;
    case ir::TaskKind::Send:
      return transfer_time(link_of(costs, schedule.lane(task.lane)),
                           std::get<ir::Send>(task.payload).bytes);
    case ir::TaskKind::AllReduce:
      return stage.all_reduce;
    case ir::TaskKind::SumTied:
      return stage.sum_tied;
    case ir::TaskKind::ClipNorm:
      return stage.clip_norm;
    case ir::TaskKind::Release:
    case ir::TaskKind::Receive:
      return 0;
  }
  XPIPE_CHECK(false) << "a task of no kind";
  return 0;
}

/// What is wrong with the link of a send lane.
void check_link(const CostModel& costs, const ir::Lane& lane, ir::Error& error) {
  const std::string where = "link " + pair_text(lane.device, lane.peer);
  const LinkCosts* link = find_link_costs(costs, lane.device, lane.peer);
  if (link == nullptr) {
    error.diagnostics.push_back({"no-link", where,
                                 "the schedule sends over it and the cost model has no such "
                                 "link; list it in the cluster or give a default_link"});
    return;
  }
  if (link->spec.duplex == ir::Duplex::Half && link->channels.empty()) {
    error.diagnostics.push_back({"no-channel", where,
                                 "is half duplex and has no channel that its directions share; "
                                 "call add_half_duplex_channels()"});
  }
  for (size_t i = 0; i < link->channels.size(); ++i) {
    const size_t channel = index_of(link->channels[i]);
    if (channel >= costs.channels.size()) {
      error.diagnostics.push_back({"no-channel", where,
                                   "holds channel " + std::to_string(channel) +
                                       ", the cost model has " +
                                       std::to_string(costs.channels.size())});
    } else if (i > 0 && index_of(link->channels[i - 1]) >= channel) {
      error.diagnostics.push_back({"no-channel", where,
                                   "holds channel " + std::to_string(channel) +
                                       " out of order; expected each once, ascending"});
    }
  }
}

void check_devices(const CostModel& costs, ir::Error& error) {
  for (size_t d = 0; d < costs.overlap_slowdown.size(); ++d) {
    if (!(costs.overlap_slowdown[d] >= 1.0)) {
      error.diagnostics.push_back({"slowdown", "device " + std::to_string(d),
                                   "computes " + std::to_string(costs.overlap_slowdown[d]) +
                                       " times slower beside a transfer; expected at least 1"});
    }
  }
}

/// The most that a task of `device` takes when transfers run all the time; nullptr: not slowed.
Nanos slowed_down(const CostModel& costs, const DeviceId* device, Nanos time) {
  if (device == nullptr || index_of(*device) >= costs.overlap_slowdown.size()) {
    return time;
  }
  const double factor = costs.overlap_slowdown[index_of(*device)];
  const bool fits = static_cast<double>(time) * factor < static_cast<double>(kTooLarge) / 2;
  return fits ? static_cast<Nanos>(static_cast<double>(time) * factor) + 1 : kTooLarge;
}

/// Adds up in more than 64 bits' worth of range by stopping at the limit.
class CappedSum {
 public:
  void add(Nanos value) { sum_ = capped_sum(sum_, value); }

  [[nodiscard]] bool is_capped() const { return sum_ == kTooLarge; }

 private:
  Nanos sum_ = 0;
};

}  // namespace

const StageCosts& costs_on(const CostModel& costs, ir::StageId stage, DeviceId device) {
  if (!costs.replicas.empty()) {
    const auto found = std::lower_bound(
        costs.replicas.begin(), costs.replicas.end(), std::pair(stage, device),
        [](const ReplicaCosts& r, auto key) { return std::pair(r.stage, r.device) < key; });
    if (found != costs.replicas.end() && found->stage == stage && found->device == device) {
      return found->costs;
    }
  }
  return costs.stages[index_of(stage)];
}

const LinkCosts* find_link_costs(const CostModel& costs, DeviceId from, DeviceId to) {
  const auto found = std::lower_bound(
      costs.links.begin(), costs.links.end(), std::pair(from, to),
      [](const LinkCosts& link, auto key) { return std::pair(link.from, link.to) < key; });
  const bool is_it = found != costs.links.end() && found->from == from && found->to == to;
  return is_it ? &*found : nullptr;
}

const ir::LinkSpec* find_link(const CostModel& costs, DeviceId from, DeviceId to) {
  const LinkCosts* link = find_link_costs(costs, from, to);
  return link == nullptr ? nullptr : &link->spec;
}

ir::Status check_costs(const CostModel& costs, const ir::Schedule& schedule) {
  ir::Error error{.kind = ir::ErrorKind::Illegal, .diagnostics = {}};
  for (size_t k = costs.stages.size(); k < schedule.stages.size(); ++k) {
    error.diagnostics.push_back(
        {"no-stage-costs", "stage " + std::to_string(k),
         "the cost model has " + std::to_string(costs.stages.size()) + " stages, the schedule " +
             std::to_string(schedule.stages.size()) + "; use costs of the same cut"});
  }
  for (const ir::Lane& lane : schedule.lanes) {
    if (lane.kind == ir::LaneKind::Send) {
      check_link(costs, lane, error);
    }
  }
  check_devices(costs, error);
  if (!error.diagnostics.empty()) {
    return error;
  }
  CappedSum sum;
  for (const ir::Task& task : schedule.tasks) {
    const ir::Lane& lane = schedule.lane(task.lane);
    const bool computes = lane.kind == ir::LaneKind::Compute;
    sum.add(slowed_down(costs, computes ? &lane.device : nullptr, duration(costs, schedule, task)));
    if (task.kind() == ir::TaskKind::Receive) {
      sum.add(link_of(costs, schedule.lane(task.lane)).latency);
    }
  }
  if (sum.is_capped()) {
    error.diagnostics.push_back({"too-long", "the segment",
                                 "all its times together pass 2^63 ns (292 years); check the "
                                 "units of times, bytes and bandwidths"});
    return error;
  }
  return {};
}

Nanos duration(const CostModel& costs, const ir::Schedule& schedule, const ir::Task& task) {
  const bool computes = schedule.lane(task.lane).kind == ir::LaneKind::Compute;
  const Nanos time = work(costs, schedule, task);
  if (!computes) {
    return time;
  }
  const size_t device = index_of(schedule.lane(task.lane).device);
  const Nanos launch = device < costs.launch_overhead.size() ? costs.launch_overhead[device] : 0;
  return capped_sum(time, capped_sum(launch, costs.task_overhead));
}

bool is_transfer(const ir::Task& from, const ir::Task& to) {
  const auto* send = std::get_if<ir::Send>(&from.payload);
  const auto* receive = std::get_if<ir::Receive>(&to.payload);
  return send != nullptr && receive != nullptr && send->peer == to.stage &&
         receive->peer == from.stage && send->micro_batch == receive->micro_batch &&
         send->pass == receive->pass;
}

Nanos edge_delay(const CostModel& costs, const ir::Schedule& schedule, const ir::Edge& edge) {
  const ir::Task& from = schedule.task(edge.from);
  return is_transfer(from, schedule.task(edge.to))
             ? link_of(costs, schedule.lane(from.lane)).latency
             : 0;
}

Nanos transfer_time(const ir::LinkSpec& link, ir::Bytes bytes) {
  if (!link.bandwidth_bytes_per_s.has_value() || bytes <= 0) {
    return 0;
  }
  return scale_half_up(bytes, kNanosPerSecond, 1, *link.bandwidth_bytes_per_s);
}

void add_half_duplex_channels(CostModel& costs) {
  std::map<std::pair<DeviceId, DeviceId>, ChannelId> by_pair;
  for (LinkCosts& link : costs.links) {
    if (link.spec.duplex != ir::Duplex::Half) {
      continue;
    }
    const std::pair<DeviceId, DeviceId> pair = std::minmax(link.from, link.to);
    const std::optional<double> bandwidth = link.spec.bandwidth_bytes_per_s;
    const auto [entry, is_new] =
        by_pair.try_emplace(pair, ChannelId(static_cast<std::uint32_t>(costs.channels.size())));
    if (is_new) {
      costs.channels.push_back(
          {std::to_string(index_of(pair.first)) + "<>" + std::to_string(index_of(pair.second)),
           bandwidth});
    } else {
      Channel& channel = costs.channels[index_of(entry->second)];
      const bool wider = !bandwidth || (channel.bandwidth_bytes_per_s &&
                                        *channel.bandwidth_bytes_per_s < *bandwidth);
      channel.bandwidth_bytes_per_s = wider ? bandwidth : channel.bandwidth_bytes_per_s;
    }
    link.channels.insert(std::ranges::lower_bound(link.channels, entry->second), entry->second);
  }
}

void set_every_link(CostModel& costs, const ir::LinkSpec& link) {
  costs.channels.clear();
  for (LinkCosts& l : costs.links) {
    l.spec = link;
    l.channels.clear();
  }
  add_half_duplex_channels(costs);
}

CostModel uniform_costs(std::uint32_t stages,
                        std::uint32_t devices,
                        Nanos forward,
                        Nanos backward,
                        const ir::LinkSpec& link) {
  CostModel costs;
  costs.stages.assign(stages, {.forward = forward,
                               .backward_input = backward / 2,
                               .backward_weight = backward - backward / 2});
  for (std::uint32_t from = 0; from < devices; ++from) {
    for (std::uint32_t to = 0; to < devices; ++to) {
      if (from != to) {
        costs.links.push_back({DeviceId(static_cast<std::uint16_t>(from)),
                               DeviceId(static_cast<std::uint16_t>(to)), link});
      }
    }
  }
  add_half_duplex_channels(costs);
  return costs;
}

}  // namespace xpipe::scheduler
