// Replaying a Program on a cost model: when each step ends. Three ways, chosen by what the costs
// ask for, with one result:
//   - nothing contends: every lane runs ahead until it waits for another one; no events at all;
//   - first-come channels: lanes run ahead likewise, only transfers that contend go through a
//   queue,
//     of channels: the earliest possible transfer of all is the next one;
//   - max-min sharing or overlap slow-down: event by event, as durations depend on what else runs
//     (simulator/fluid_replay.h).
//
// Waiting for channels is scheduler/link_model.h's: (time ready, TaskId), no overtaking, and what
// is granted at one instant is granted before anything that follows from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/ids.h"
#include "ir/status.h"
#include "ir/timeline.h"
#include "scheduler/cost_model.h"
#include "scheduler/fair_sharing.h"
#include "scheduler/link_model.h"
#include "scheduler/progress.h"
#include "simulator/channel_queue.h"
#include "simulator/program.h"

namespace xpipe::simulator {

/// What costs need under which durations depend on what else runs.
struct FluidCosts {
  scheduler::FairSharing sharing;
  scheduler::LinkChannels channels;
  bool shares = false;                          ///< channels are shared, not waited for
  std::vector<scheduler::Speed> overlap_speed;  ///< by DeviceId: compute beside a transfer
};

/// A cost model in the terms of one Program. Plain values; price() again after a change.
struct CostTable {
  std::vector<ir::Nanos> durations;  ///< by cost class
  std::vector<ir::Nanos> delays;     ///< 0, then by LaneId the latency of the send lane's link
  std::vector<std::uint32_t> channel_begin;    ///< by LaneId, and one more: into channels
  std::vector<scheduler::ChannelId> channels;  ///< what the sends of each lane hold, ascending
  std::size_t channel_count = 0;               ///< of the cost model
  bool contends = false;                       ///< some lane holds channels
  std::optional<FluidCosts> fluid;  ///< with max-min sharing of a channel, or overlap slow-down

  [[nodiscard]] std::span<const scheduler::ChannelId> channels_of(std::size_t lane) const {
    return std::span(channels).subspan(channel_begin[lane],
                                       channel_begin[lane + 1] - channel_begin[lane]);
  }
};

/// Requires: scheduler::check_costs(costs, program.schedule()).ok(). Linear in classes and lanes.
[[nodiscard]] CostTable price(const Program& program, const scheduler::CostModel& costs);

/// What was left of a task that ran when the first task of a mini-batch started. Fluid replay
/// (simulator/fluid_replay.h) needs it: there, the end of a task is not known from its start.
struct WorkLeft {
  std::uint32_t mini_batch = 0;  ///< the border's
  ir::TaskId task{};
  scheduler::Progress::Left left;

  bool operator==(const WorkLeft&) const = default;
};

/// The working memory of one replay and its result; the caller's, to be used again: the first
/// replay of a program sizes it, later ones allocate nothing. 8 bytes a step and some a lane
/// (fluid: 16). Not thread-safe.
class ReplayState {
 public:
  /// When each step ends; of the last replay() that succeeded.
  [[nodiscard]] std::span<const ir::Nanos> ends() const { return ends_; }

  /// When each step starts; empty unless the replay was fluid: else it is end - duration.
  [[nodiscard]] std::span<const ir::Nanos> starts() const { return starts_; }

  /// In the order in which mini-batches began; empty unless the replay was fluid.
  [[nodiscard]] std::span<const WorkLeft> work_left() const { return work_left_; }

  /// When the last task ends, receives included. Linear in lanes.
  [[nodiscard]] ir::Nanos makespan() const { return makespan_; }

  [[nodiscard]] std::size_t heap_bytes() const;

 private:
  template <bool kContends>
  friend class LaneReplay;
  friend class FluidReplay;

  struct Lane {
    ir::Nanos free_at = 0;       ///< end of what it did last
    std::uint32_t next = 0;      ///< its next step
    std::uint32_t end = 0;       ///< behind its last step
    ir::Nanos next_blocked = 0;  ///< the next in the chain of those that wait for the same step
  };

  std::vector<ir::Nanos> ends_;
  std::vector<ir::Nanos> starts_;
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> runnable_;
  ChannelQueue queue_;
  std::vector<WorkLeft> work_left_;
  ir::Nanos makespan_ = 0;

  friend ir::Result<ir::Nanos> replay(const Program&, const CostTable&, ReplayState&);
};

/// The makespan; `state` then holds the ends of all steps. Linear in steps and waits; each transfer
/// that contends costs the logarithm of the number of channels besides, fluid replay more
/// (simulator/fluid_replay.h).
/// Errors: Illegal, "cycle": tasks wait for each other; the ring by device, as ir::validate() says.
[[nodiscard]] ir::Result<ir::Nanos> replay(const Program& program,
                                           const CostTable& costs,
                                           ReplayState& state);

/// The spans of all tasks, receives included. Requires: replay(program, costs, state) was the last.
[[nodiscard]] ir::Timeline timeline_of(const Program& program,
                                       const CostTable& costs,
                                       const ReplayState& state);

}  // namespace xpipe::simulator
