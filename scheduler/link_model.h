// Who may use a link when: each direction of a full-duplex link is its lane's own, a half-duplex
// link is one channel that serves both directions first come, first served. The arithmetic of
// waiting for links, shared by the simulator and the executor's virtual device; what one transfer
// takes is scheduler/cost_model.h.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "scheduler/cost_model.h"

namespace xpipe::scheduler {

enum class ChannelId : std::uint32_t {};

/// The channels of one replay. A send that is ready asks for its channel; when nothing else can
/// happen at an instant, free channels are granted. That rule makes the order (time ready, TaskId),
/// whatever order the events of one instant are handled in. Not thread-safe.
///
///   0 ---- 1   half duplex:  0SEND_F1 ready at 5, 1SEND_B0 ready at 5, 3 ns each
///                            0SEND_F1 5..8, 1SEND_B0 8..11 (if its TaskId is the larger one)
class LinkChannels {
 public:
  /// Requires: check_costs(costs, schedule).ok(). Neither argument need outlive the channels.
  LinkChannels(const CostModel& costs, const ir::Schedule& schedule);

  [[nodiscard]] std::size_t size() const { return channels_.size(); }

  /// The channel that the sends of `lane` share with others; nullopt where the lane is alone. A
  /// direction is shared with its opposite when both are half duplex.
  [[nodiscard]] std::optional<ChannelId> channel_of(ir::LaneId lane) const;

  /// `send` could start at `ready` if the channel were free.
  void request(ChannelId channel, ir::TaskId send, ir::Nanos ready);

  /// Gives `channel`, if it is free, to the first in line, which then starts now.
  /// Requires: every request up to now has been made.
  [[nodiscard]] std::optional<ir::TaskId> grant(ChannelId channel);

  /// The send that holds `channel` has ended.
  void release(ChannelId channel);

 private:
  using Request = std::pair<ir::Nanos, ir::TaskId>;

  struct Channel {
    bool busy = false;
    std::priority_queue<Request, std::vector<Request>, std::greater<>> line;
  };

  std::vector<std::optional<ChannelId>> by_lane_;
  std::vector<Channel> channels_;
};

}  // namespace xpipe::scheduler
