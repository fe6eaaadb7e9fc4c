// The transfers that wait for channels during a replay, and which of them is the earliest possible:
// a line for each channel and a tree of minima over the channels. By (time ready, TaskId), no
// overtaking on any channel, as scheduler/link_model.h says; here requests may be made ahead of
// time, and whoever is granted is told until when the channels are held.
//
//   channel 0   [3SEND_F1 ready 40][2SEND_B0 ready 55]      free from 50
//   channel 1   [2SEND_B0 ready 55]                         free from 20   ► 3SEND_F1 at 50 is next
//
// No allocation after reset(). Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ir/ids.h"
#include "scheduler/cost_model.h"

namespace xpipe::simulator {

class ChannelQueue {
 public:
  /// No one waits, all is free at 0. Lane l holds channels[begin[l]] to channels[begin[l + 1]],
  /// ascending; both must outlive the queue's use.
  void reset(std::span<const std::uint32_t> begin,
             std::span<const scheduler::ChannelId> channels,
             std::size_t channel_count);

  /// `send` of `lane` could start at `ready` if its channels were free.
  /// Requires: the lane holds channels and asks for no other send.
  void request(std::uint32_t lane, ir::TaskId send, ir::Nanos ready);

  /// Whether anyone waits.
  [[nodiscard]] bool empty() const { return earliest() == kNever; }

  /// Grants every transfer that can start at the earliest instant at which any can, before what
  /// may follow from them: their lanes are in granted() then. `duration_of(lane)` is how long the
  /// transfer holds its channels. Returns the instant. Requires: !empty(), and no request that is
  /// not known yet can be ready before that instant.
  template <typename DurationOf>
  ir::Nanos grant(DurationOf&& duration_of) {
    const ir::Nanos at = earliest();
    granted_.clear();
    while (earliest() == at) {
      const std::uint32_t channel = earliest_channel();
      const std::uint32_t lane = line(channel)->lane;
      const ir::Nanos duration = duration_of(lane);
      granted_.push_back(lane);
      if (duration > 0) {  // nothing that it makes the first in line can start at this instant
        hold(lane, at + duration);
      } else {
        instant_.push_back(lane);
        set(channel, kNever);
      }
    }
    for (const std::uint32_t lane : instant_) {
      hold(lane, at);
    }
    instant_.clear();
    return at;
  }

  /// Of the last grant().
  [[nodiscard]] std::span<const std::uint32_t> granted() const { return granted_; }

  [[nodiscard]] std::size_t heap_bytes() const;

 private:
  struct Request {
    ir::Nanos ready = 0;
    ir::TaskId send{};
    std::uint32_t lane = 0;

    [[nodiscard]] bool is_before(const Request& other) const {
      return ready != other.ready ? ready < other.ready : send < other.send;
    }
  };

  struct Channel {
    ir::Nanos free_at = 0;
    std::uint32_t begin = 0;  ///< of its line in waiting_
    std::uint32_t count = 0;  ///< who waits, first come first
  };

  static constexpr ir::Nanos kNever = std::numeric_limits<ir::Nanos>::max();
  static constexpr std::uint32_t kFanBits = 3;  ///< eight children: one cache line
  static constexpr std::uint32_t kFan = 1U << kFanBits;

  [[nodiscard]] Request* line(std::uint32_t channel) {
    return waiting_.data() + channels_[channel].begin;
  }

  [[nodiscard]] std::span<const scheduler::ChannelId> channels_of(std::uint32_t lane) const {
    return lane_channels_.subspan(lane_begin_[lane], lane_begin_[lane + 1] - lane_begin_[lane]);
  }

  [[nodiscard]] std::uint32_t first_channel(std::uint32_t lane) const {
    return ir::index_of(lane_channels_[lane_begin_[lane]]);
  }

  [[nodiscard]] ir::Nanos earliest() const { return tree_[root_]; }

  [[nodiscard]] std::uint32_t earliest_channel() const;
  void set(std::uint32_t channel, ir::Nanos start);
  bool insert(std::uint32_t channel, const Request& request);
  void hold(std::uint32_t lane, ir::Nanos until);
  void remove_first(std::uint32_t channel);
  void update(std::uint32_t channel);
  void update_with_first(std::uint32_t channel);

  std::span<const std::uint32_t> lane_begin_;
  std::span<const scheduler::ChannelId> lane_channels_;
  std::vector<Channel> channels_;
  std::vector<Request> waiting_;  ///< the lines, one after the other
  /// When the first in line on a channel can start, for transfers whose first channel it is and
  /// who are first on all their channels; else kNever. Level by level, the leaves first.
  std::vector<ir::Nanos> tree_;
  std::vector<std::uint32_t> level_begin_;
  std::size_t root_ = 0;
  std::vector<std::uint32_t> granted_;
  std::vector<std::uint32_t> instant_;  ///< of those, the ones that take no time
};

}  // namespace xpipe::simulator
