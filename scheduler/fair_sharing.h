// Max-min fair sharing of channels: how fast each of the transfers under way goes when all of them
// go at once. Progressive filling (Bertsekas, Gallager: Data Networks, 6.5.2): all rates grow
// alike; who meets the bandwidth of its own link, or a full channel, stays at what it has.
//
//   channel of 10 GB/s    a (link of 2 GB/s)   2         2 + 4 + 4 = 10
//                         b (link of 8 GB/s)   4
//                         c (link of 8 GB/s)   4         b: half of its full speed
//
// In whole 2^-8 bytes/s, rounded down: the same rates whatever the order in which transfers began.
// Shared by the simulator and the executor's virtual device. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "scheduler/cost_model.h"
#include "scheduler/progress.h"

namespace xpipe::scheduler {

class FairSharing {
 public:
  /// Requires: check_costs(costs, schedule).ok(). Neither argument need outlive the object.
  FairSharing(const CostModel& costs, const ir::Schedule& schedule);

  /// Whether the transfers of `lane` share anything.
  [[nodiscard]] bool shares(ir::LaneId lane) const {
    return !lanes_[ir::index_of(lane)].channels.empty();
  }

  /// The speeds of transfers that are under way, one of each lane, in the order of `lanes`: of the
  /// full speed of their own links. Requires: shares(lane) for each, no lane twice.
  /// Linear in the channels of `lanes`, times the number of different rates.
  [[nodiscard]] std::vector<Speed> speeds(const std::vector<ir::LaneId>& lanes);

 private:
  using Rate = std::int64_t;  ///< 2^-8 bytes/s

  struct Lane {
    std::vector<ChannelId> channels;
    Rate most = 0;  ///< of its own link
  };

  struct Channel {
    Rate capacity = 0;
    Rate left = 0;             ///< while filling
    std::int64_t growing = 0;  ///< transfers whose rates still grow
  };

  [[nodiscard]] Rate bound_of(const Lane& lane) const;

  std::vector<Lane> lanes_;        ///< by LaneId
  std::vector<Channel> channels_;  ///< by ChannelId
};

}  // namespace xpipe::scheduler
