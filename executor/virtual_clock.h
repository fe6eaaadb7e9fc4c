// When everything happens on a cost model: lanes with a clock each, recorded as streams and
// resolved afterwards. Written apart from the simulator on purpose: the two are twins that check
// each other (style.md §13). The simulator pops events in the order of time; this one lets every
// lane run ahead as far as its waits allow, and stops only where a half-duplex or shared link must
// know who comes first.
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
#include "scheduler/link_model.h"

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
  /// link allow. Requires: waits as of a legal schedule. Linear in tasks and waits without channels
  /// to contend for; with them, times the number of lanes that do.
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
    std::uint32_t next_wait = 0;
    ir::Nanos free_at = 0;                      ///< end of what it did last
    ir::Nanos ready_at = 0;                     ///< when the head could start
    bool asks_for_link = false;                 ///< the head is ready but for its link
    std::optional<std::uint32_t> next_blocked;  ///< another lane that waits for the same task
  };

  void advance(std::uint32_t lane);
  void advance_all_runnable();
  void occupy(std::uint32_t lane, ir::Nanos start);
  [[nodiscard]] std::optional<ir::Nanos> next_grant(std::uint32_t lane) const;
  void grant(std::uint32_t lane, ir::Nanos start);
  bool grant_links();

  [[nodiscard]] bool ended(ir::TaskId task) const { return ended_[ir::index_of(task)]; }

  const ir::Schedule& schedule_;
  const scheduler::CostModel& costs_;
  scheduler::LinkChannels channels_;
  std::vector<Lane> lanes_;                               ///< by LaneId
  std::vector<std::uint32_t> contending_;                 ///< lanes that have channels
  std::vector<ir::Nanos> free_at_;                        ///< by ChannelId
  std::vector<std::optional<std::uint32_t>> held_by_;     ///< by ChannelId: not given back yet
  std::vector<ir::Span> spans_;                           ///< by TaskId
  std::vector<bool> ended_;                               ///< by TaskId
  std::vector<std::optional<std::uint32_t>> blocked_by_;  ///< by TaskId: the first lane that waits
  std::vector<std::uint32_t> runnable_;                   ///< lanes to look at again
};

}  // namespace xpipe::executor
