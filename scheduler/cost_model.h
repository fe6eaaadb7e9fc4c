// The cost model: how long each task of a schedule takes and how many bytes it
// moves. One function answers "what does this task cost", for the simulator,
// the executor's virtual device and the planner alike. Built from a profile
// (scheduler/stage_costs.h) or from two numbers.
#pragma once

#include <cstdint>
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
  ir::Bytes parameter_bytes = 0;         ///< one copy of the stage's weights
  ir::Bytes optimizer_bytes = 0;         ///< moments and the like
  ir::Bytes prediction_bytes = 0;        ///< history that a stage which predicts keeps beside them
  ir::Bytes saved_bytes = 0;             ///< activations of one micro-batch in flight
  ir::Bytes saved_for_weight_bytes = 0;  ///< of those, what a split backward keeps until its W

  bool operator==(const StageCosts&) const = default;
};

/// The link between two devices, in one direction.
struct LinkCosts {
  ir::DeviceId from{};
  ir::DeviceId to{};
  ir::LinkSpec spec;

  bool operator==(const LinkCosts&) const = default;
};

struct CostModel {
  std::vector<StageCosts> stages;  ///< by StageId
  std::vector<LinkCosts> links;    ///< sorted by (from, to); every pair that a schedule uses
  ir::Nanos task_overhead = 0;     ///< on every task of a compute lane, predictions and steps too
  std::vector<std::string> notes;  ///< assumptions, to be printed: "predictions are free: ..."
};

/// How long `task` occupies its lane. A send takes bytes / bandwidth (half up
/// to the nearest nanosecond; unknown bytes count as 0); a receive takes no
/// time of its own.
[[nodiscard]] ir::Nanos duration(const CostModel& costs,
                                 const ir::Schedule& schedule,
                                 const ir::Task& task);

/// The delay on top of `from`'s end before `to` may start: the link's latency
/// from a send to its receive, else 0. The sender's lane is free meanwhile
/// (field case G1).
[[nodiscard]] ir::Nanos edge_delay(const CostModel& costs,
                                   const ir::Schedule& schedule,
                                   const ir::Edge& edge);

/// The link from one device to another; nullptr when the model has none. Points into `costs`.
[[nodiscard]] const ir::LinkSpec* find_link(const CostModel& costs,
                                            ir::DeviceId from,
                                            ir::DeviceId to);

/// Whether the model prices every task of `schedule`: a stage for each stage, a link for each lane
/// that sends, and a sum of all times that fits in ir::Nanos (292 years), so that no replay can
/// overflow. Errors: Illegal, every stage and link that is missing.
ir::Status check_costs(const CostModel& costs, const ir::Schedule& schedule);

/// bytes / bandwidth in nanoseconds, half up; 0 with infinite bandwidth.
[[nodiscard]] ir::Nanos transfer_time(const ir::LinkSpec& link, ir::Bytes bytes);

/// Equal stages and one kind of link everywhere: the textbook's model.
[[nodiscard]] CostModel uniform_costs(std::uint32_t stages,
                                      std::uint32_t devices,
                                      ir::Nanos forward,
                                      ir::Nanos backward,
                                      const ir::LinkSpec& link);

}  // namespace xpipe::scheduler
