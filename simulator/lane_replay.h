// Internal to simulator/replay.h: every lane runs ahead as far as what it waits for is known.
// Without contention that is the whole replay; with it, transfers that hold channels stop at a
// ChannelQueue, and when no lane can run any more the earliest possible one is granted: what is not
// known yet follows from some transfer that waits, so it cannot be ready before.
//
// The end of a step that is not over holds who waits for it: kNobody, or the first of a chain of
// lanes (lane_word). So a step that ends finds whom to wake in the word that it writes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ir/ids.h"
#include "simulator/replay.h"

namespace xpipe::simulator {

template <bool kContends>
class LaneReplay {
 public:
  /// All three must outlive the object.
  LaneReplay(const Program& program, const CostTable& costs, ReplayState& state)
      : program_(program),
        costs_(costs),
        state_(state),
        steps_(program.steps().data()),
        durations_(costs.durations.data()),
        delays_(costs.delays.data()) {
    const std::size_t lanes = program.lanes().size();
    state.starts_.clear();
    state.work_left_.clear();
    state.ends_.assign(program.steps().size(), kNobody);
    state.ends_[kStart] = 0;
    state.lanes_.resize(lanes);
    state.runnable_.resize(lanes);
    ends_ = state.ends_.data();
    lanes_ = state.lanes_.data();
    runnable_ = state.runnable_.data();
    for (std::size_t l = 0; l < lanes; ++l) {
      lanes_[l] = {.next = program.lanes()[l].begin, .end = program.lanes()[l].end};
      runnable_[lanes - 1 - l] = static_cast<std::uint32_t>(l);  // lane 0 on top
    }
    runnable_count_ = lanes;
    if constexpr (kContends) {
      state.queue_.reset(costs.channel_begin, costs.channels, costs.channel_count);
    }
  }

  /// Whether every step is over then.
  bool run() {
    run_ready();
    if constexpr (kContends) {
      while (!state_.queue_.empty()) {
        grant();
        run_ready();
      }
    }
    return std::all_of(state_.lanes_.begin(), state_.lanes_.end(),
                       [](const Lane& lane) { return lane.next == lane.end; });
  }

 private:
  using Lane = ReplayState::Lane;
  using Nanos = ir::Nanos;

  static constexpr Nanos kNobody = -1;
  /// Steps to fetch ahead: two lines of ends. There are more lanes than streams that hardware
  /// follows; at 64 stages x 4,096 half duplex it saves a sixth of the time.
  static constexpr std::uint32_t kAhead = 24;

  static constexpr Nanos lane_word(std::uint32_t lane) { return -2 - Nanos{lane}; }

  static constexpr std::uint32_t lane_of(Nanos word) {
    return static_cast<std::uint32_t>(-2 - word);
  }

  void run_ready() {
    while (runnable_count_ > 0) {
      advance(runnable_[--runnable_count_]);
    }
  }

  /// Runs the lane until it is done, waits for a step that is not over, or for channels.
  void advance(std::uint32_t l) {
    Lane& lane = lanes_[l];
    std::uint32_t next = lane.next;
    Nanos free_at = lane.free_at;
    const std::uint32_t end = lane.end;
    const bool contends = kContends && costs_.channel_begin[l] != costs_.channel_begin[l + 1];
    while (next != end) {
      const Step step = steps_[next];
      __builtin_prefetch(steps_ + next + kAhead);
      __builtin_prefetch(ends_ + next + kAhead, 1);
      Nanos arrival = 0;
      if ((step.after & kSeveral) != 0) {
        if (!last_arrival(l, step.after & ~kSeveral, arrival)) {
          break;
        }
      } else {
        arrival = ends_[step.after];
        if (arrival < 0) {
          block(l, step.after);
          break;
        }
        arrival += delays_[step.delay];
      }
      free_at = std::max(free_at, arrival);
      if (contends) {
        state_.queue_.request(l, send_at(l, next), free_at);
        break;
      }
      free_at += durations_[step.cost];
      finish(next, free_at);
      ++next;
    }
    lane.next = next;
    lane.free_at = free_at;
  }

  /// The latest of several arrivals; false when one is not over: then lane `l` waits for it.
  bool last_arrival(std::uint32_t l, std::uint32_t wait, Nanos& arrival) {
    arrival = 0;
    for (; wait != kLastWait; wait = program_.waits()[wait].next) {
      const Wait& w = program_.waits()[wait];
      const Nanos end = ends_[w.after];
      if (end < 0) {
        block(l, w.after);
        return false;
      }
      arrival = std::max(arrival, end + delays_[w.delay]);
    }
    return true;
  }

  void block(std::uint32_t l, std::uint32_t step) {
    lanes_[l].next_blocked = ends_[step];
    ends_[step] = lane_word(l);
  }

  void finish(std::uint32_t step, Nanos end) {
    Nanos waiting = ends_[step];
    ends_[step] = end;
    while (waiting != kNobody) {
      const std::uint32_t lane = lane_of(waiting);
      runnable_[runnable_count_++] = lane;
      waiting = lanes_[lane].next_blocked;
    }
  }

  /// Of a lane whose steps are its tasks.
  [[nodiscard]] ir::TaskId send_at(std::uint32_t l, std::uint32_t step) const {
    return program_.schedule().lanes[l].order[step - program_.lanes()[l].begin];
  }

  void grant() {
    const auto duration_of = [this](std::uint32_t l) {
      return durations_[steps_[lanes_[l].next].cost];
    };
    const Nanos at = state_.queue_.grant(duration_of);
    for (const std::uint32_t l : state_.queue_.granted()) {
      Lane& lane = lanes_[l];
      lane.free_at = at + duration_of(l);
      runnable_[runnable_count_++] = l;
      finish(lane.next++, lane.free_at);
    }
  }

  const Program& program_;
  const CostTable& costs_;
  ReplayState& state_;
  const Step* steps_;
  const Nanos* durations_;
  const Nanos* delays_;
  Nanos* ends_ = nullptr;
  Lane* lanes_ = nullptr;
  std::uint32_t* runnable_ = nullptr;  ///< a stack: each lane stands in it at most once
  std::size_t runnable_count_ = 0;
};

}  // namespace xpipe::simulator
