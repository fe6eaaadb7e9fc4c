// Who may use a link when, first come, first served: each direction of a full-duplex link of two
// devices is its lane's own; a transfer over a half-duplex or a shared link holds the channels of
// its link (scheduler/cost_model.h) as long as it runs. The arithmetic of waiting for links, shared
// by the simulator and the executor's virtual device; what one transfer takes is duration()'s.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "scheduler/cost_model.h"

namespace xpipe::scheduler {

/// The channels of one replay. A send that is ready asks for all its channels at once. Requests are
/// served in the order (time ready, TaskId), and none overtakes another on any channel: a send goes
/// when it is the first in line on each of its channels and all of them are free. Free channels are
/// granted when nothing else can happen at an instant; that makes the order the same whatever order
/// the events of one instant are handled in. Not thread-safe.
///
///   0 ---- 1   half duplex:  0SEND_F1 ready at 5, 1SEND_B0 ready at 5, 3 ns each
///                            0SEND_F1 5..8, 1SEND_B0 8..11 (if its TaskId is the larger one)
class LinkChannels {
 public:
  /// Requires: check_costs(costs, schedule).ok(). Neither argument need outlive the channels.
  LinkChannels(const CostModel& costs, const ir::Schedule& schedule);

  /// Of the cost model, whether used or not.
  [[nodiscard]] std::size_t size() const { return channels_.size(); }

  /// What the sends of `lane` hold; empty where the lane alone serialises them. Ascending.
  [[nodiscard]] std::span<const ChannelId> channels_of(ir::LaneId lane) const;

  /// `send`, of `lane`, could start at `ready` if its channels were free.
  /// Requires: channels_of(lane) is not empty, and the lane's last send has ended.
  void request(ir::LaneId lane, ir::TaskId send, ir::Nanos ready);

  /// Whether the send that `lane` has asked for is the first in line on all its channels.
  [[nodiscard]] bool is_next(ir::LaneId lane) const;

  /// If the first in line on `channel` is_next() and all its channels are free, it has them from
  /// now on, and starts now. Requires: every request up to now has been made.
  [[nodiscard]] std::optional<ir::TaskId> grant(ChannelId channel);

  /// The send that `lane` was granted has ended. Whoever is the first in line on one of
  /// channels_of(lane) may be able to go.
  void release(ir::LaneId lane);

 private:
  struct Request {
    ir::Nanos ready = 0;
    ir::TaskId send{};
    ir::LaneId lane{};

    auto operator<=>(const Request&) const = default;
  };

  struct Line {
    bool busy = false;
    std::priority_queue<Request, std::vector<Request>, std::greater<>> waiting;
  };

  std::vector<std::vector<ChannelId>> by_lane_;
  std::vector<Line> channels_;
};

}  // namespace xpipe::scheduler
