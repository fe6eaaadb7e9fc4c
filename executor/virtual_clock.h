// When everything happens on a cost model: lanes of tasks, recorded as streams and resolved
// afterwards. Written apart from the simulator on purpose: the two are twins that check each other
// (style.md §13). The simulator lays tasks out, lets lanes run ahead and keeps queues of what may
// change; this one goes from instant to instant, and at each looks at every lane again. Only what a
// transfer costs and how links are shared comes from the same place (scheduler/).
//
//   at 7 ns   lane 0: 0F0 runs, 3 ns left       lane 1: 1F0 waits for 1RECV_F0, there at 9 ns
//   next: min(7 + 3, 9) = 9 ns
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/timeline.h"
#include "scheduler/cost_model.h"
#include "scheduler/fair_sharing.h"
#include "scheduler/link_model.h"
#include "scheduler/progress.h"

namespace xpipe::executor {

class VirtualClock {
 public:
  /// Requires: scheduler::check_costs(costs, schedule).ok(). Both must outlive the clock.
  VirtualClock(const ir::Schedule& schedule, const scheduler::CostModel& costs);

  /// What is added to `lane` next starts only after `event` (and, from a send to its receive, the
  /// latency of the link). Requires: `event` has been added.
  void wait(ir::LaneId lane, ir::TaskId event);

  void add(ir::LaneId lane, ir::TaskId task);

  /// The spans of all tasks added, by task id: each starts as early as its lane, its waits and its
  /// link allow. Requires: waits as of a legal schedule. Linear in tasks times lanes.
  [[nodiscard]] ir::Timeline resolve() &&;

 private:
  struct Item {
    ir::TaskId task{};
    std::uint32_t waits_end = 0;  ///< into Lane::waits
  };

  struct Lane {
    std::vector<Item> items;
    std::vector<ir::TaskId> waits;
    std::uint32_t head = 0;
    std::uint32_t next_wait = 0;            ///< of the head's: those before are over
    ir::Nanos arrives_at = 0;               ///< the latest of those
    bool asks = false;                      ///< the head stands in line for its channels
    std::optional<scheduler::Progress> at;  ///< the head runs
  };

  bool step_lanes();
  bool look_at(std::uint32_t lane);
  void start(std::uint32_t lane);
  void end_head(std::uint32_t lane);
  bool grant_channels();
  void set_speeds();
  [[nodiscard]] scheduler::Speed compute_speed(const ir::Lane& lane) const;
  [[nodiscard]] std::optional<ir::Nanos> next_instant() const;

  [[nodiscard]] const Item& head_of(const Lane& lane) const { return lane.items[lane.head]; }

  /// Who wants the lane's channels stands in line for them; else its transfers share them.
  [[nodiscard]] bool stands_in_line(std::uint32_t lane) const;

  const ir::Schedule& schedule_;
  const scheduler::CostModel& costs_;
  scheduler::LinkChannels channels_;
  scheduler::FairSharing sharing_;
  ir::Nanos now_ = 0;
  std::vector<Lane> lanes_;      ///< by LaneId
  std::vector<ir::Span> spans_;  ///< by TaskId
  std::vector<bool> ended_;      ///< by TaskId
};

}  // namespace xpipe::executor
