// The cost model: how long each task of a schedule takes and how many bytes it
// moves. One function answers "what does this task cost", for the simulator,
// the executor's virtual device and the planner alike. Built from a profile
// (scheduler/stage_costs.h) or from two numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/cluster.h"
#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::scheduler {

/// What one stage costs on its device, for one micro-batch (T = 1: one
/// mini-batch) or one step.
struct StageCosts {
  ir::Nanos forward = 0;
  ir::Nanos backward_input = 0;
  ir::Nanos backward_weight = 0;  ///< a whole backward takes input + weight
  ir::Nanos step = 0;
  ir::Nanos predict = 0;
  ir::Nanos stash = 0;
  ir::Nanos all_reduce = 0;        ///< summing the gradients over the stage's replicas
  ir::Nanos sum_tied = 0;          ///< summing those shared with another stage (the largest tie)
  ir::Nanos clip_norm = 0;         ///< reading them, the norms of all stages, scaling them
  ir::Bytes parameter_bytes = 0;   ///< one copy of the stage's weights
  ir::Bytes optimizer_bytes = 0;   ///< moments and the like
  ir::Bytes prediction_bytes = 0;  ///< history that a stage which predicts keeps beside them
  ir::Bytes saved_bytes = 0;       ///< activations of one micro-batch in flight
  ir::Bytes saved_for_weight_bytes = 0;  ///< of those, what a split backward keeps until its W
  ir::Bytes kept_bytes = 0;        ///< with a recompute: held from the forward to the recompute
  ir::Bytes recomputed_bytes = 0;  ///< with a recompute: held from it to the end of the backward
  ir::Bytes workspace_bytes = 0;   ///< scratch of the pass that runs

  bool operator==(const StageCosts&) const = default;
};

/// A replica whose costs are not those of its stage's first one (a device of another speed).
struct ReplicaCosts {
  ir::StageId stage{};
  ir::DeviceId device{};
  StageCosts costs;

  bool operator==(const ReplicaCosts&) const = default;
};

/// An index into CostModel::channels.
enum class ChannelId : std::uint32_t {};

/// What several transfers contend for: both directions of a half-duplex pair of devices, one
/// direction of a shared link, or both of a half-duplex shared link.
struct Channel {
  std::string name;                             ///< "0<>1", "nic0 forward", "nic0 back", "bus"
  std::optional<double> bandwidth_bytes_per_s;  ///< absent: infinite

  bool operator==(const Channel&) const = default;
};

/// The link between two devices, in one direction.
struct LinkCosts {
  ir::DeviceId from{};
  ir::DeviceId to{};
  ir::LinkSpec spec;  ///< bandwidth: the narrowest on the way; latency: the sum over the way
  std::vector<ChannelId> channels = {};  ///< sorted; empty: the send lane alone serialises it

  bool operator==(const LinkCosts&) const = default;
};

struct CostModel {
  std::vector<StageCosts> stages;      ///< by StageId; of a replicated stage, its first replica's
  std::vector<ReplicaCosts> replicas;  ///< sorted by (stage, device); those that differ
  std::vector<LinkCosts> links;        ///< sorted by (from, to); every pair that a schedule uses
  std::vector<Channel> channels;       ///< by ChannelId
  ir::Sharing sharing = ir::Sharing::FirstCome;
  ir::Nanos task_overhead = 0;  ///< on every task of a compute lane, predictions and steps too
  std::vector<ir::Nanos> launch_overhead;  ///< by DeviceId, besides; empty: none
  /// By DeviceId, >= 1: compute takes so many times longer while a transfer runs from or to the
  /// device (the latency left out). Empty: none. The replay's business, not duration()'s.
  std::vector<double> overlap_slowdown;
  std::vector<std::string> notes;  ///< assumptions, to be printed: "predictions are free: ..."
};

/// The costs of `stage` on `device`, one of its replicas. Points into `costs`.
[[nodiscard]] const StageCosts& costs_on(const CostModel& costs,
                                         ir::StageId stage,
                                         ir::DeviceId device);

/// How long `task` occupies its lane. A send takes bytes / bandwidth (half up
/// to the nearest nanosecond; unknown bytes count as 0); a receive takes no
/// time of its own.
[[nodiscard]] ir::Nanos duration(const CostModel& costs,
                                 const ir::Schedule& schedule,
                                 const ir::Task& task);

/// Whether `to` is the receive of what `from` sends.
[[nodiscard]] bool is_transfer(const ir::Task& from, const ir::Task& to);

/// The delay on top of `from`'s end before `to` may start: the link's latency
/// from a send to its receive, else 0. The sender's lane is free meanwhile
/// (field case G1).
[[nodiscard]] ir::Nanos edge_delay(const CostModel& costs,
                                   const ir::Schedule& schedule,
                                   const ir::Edge& edge);

/// The link from one device to another; nullptr when the model has none. Points into `costs`.
[[nodiscard]] const LinkCosts* find_link_costs(const CostModel& costs,
                                               ir::DeviceId from,
                                               ir::DeviceId to);

/// Its speed and latency alone.
[[nodiscard]] const ir::LinkSpec* find_link(const CostModel& costs,
                                            ir::DeviceId from,
                                            ir::DeviceId to);

/// Whether the model prices every task of `schedule`: a stage for each stage, a link for each lane
/// that sends, with channels that there are, and a sum of all times, slowed down as they may be,
/// that fits in ir::Nanos (292 years), so that no replay can overflow. Errors: Illegal, every
/// stage, link and channel that is missing.
ir::Status check_costs(const CostModel& costs, const ir::Schedule& schedule);

/// Gives each pair of devices of which a direction is half duplex its channel, as wide as the wider
/// direction. Links whose channels are set by hand need it not. Requires: links sorted; called
/// once.
void add_half_duplex_channels(CostModel& costs);

/// Every link of the model becomes `link`, with the channels that takes; no other channel stays.
void set_every_link(CostModel& costs, const ir::LinkSpec& link);

/// bytes / bandwidth in nanoseconds, half up; 0 with infinite bandwidth.
[[nodiscard]] ir::Nanos transfer_time(const ir::LinkSpec& link, ir::Bytes bytes);

/// Equal stages and one kind of link everywhere: the textbook's model.
[[nodiscard]] CostModel uniform_costs(std::uint32_t stages,
                                      std::uint32_t devices,
                                      ir::Nanos forward,
                                      ir::Nanos backward,
                                      const ir::LinkSpec& link);

}  // namespace xpipe::scheduler
