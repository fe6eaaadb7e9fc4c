// Internal to simulator/replay.h: the replay of costs under which how long a task takes depends on
// what else runs, event by event: transfers that share channels by max-min (scheduler/
// fair_sharing.h), compute that transfers slow down (overlap). First-come channels may be there
// too.
//
// At each instant, in this order: what ends, ends; what can start, starts; free channels are
// granted, and again, until nothing else happens at this instant; then the speeds are worked out
// anew. Each event costs the logarithm of the number of lanes, and a change among transfers that
// share as much as there are of these.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "ir/ids.h"
#include "scheduler/fair_sharing.h"
#include "scheduler/link_model.h"
#include "scheduler/progress.h"
#include "simulator/replay.h"

namespace xpipe::simulator {

class FluidReplay {
 public:
  /// Requires: costs.fluid. All three must outlive the object.
  FluidReplay(const Program& program, const CostTable& costs, ReplayState& state);

  /// Whether every step is over then.
  bool run();

 private:
  enum class Doing : std::uint8_t { Nothing, Waiting, Asking, Running };

  struct Lane {
    std::uint32_t next = 0;
    std::uint32_t end = 0;
    std::uint32_t alarm = 0;  ///< the number of the alarm that counts
    Doing doing = Doing::Nothing;
    bool shares = false;    ///< its transfers share channels by max-min
    bool contends = false;  ///< or wait for them
    bool sends = false;
    ir::Nanos next_blocked = 0;
    scheduler::Progress progress;
  };

  struct Alarm {
    ir::Nanos time = 0;
    std::uint32_t lane = 0;
    std::uint32_t number = 0;

    auto operator<=>(const Alarm&) const = default;
  };

  void settle();
  void advance(std::uint32_t l);
  [[nodiscard]] bool is_ready(std::uint32_t l, ir::Nanos& arrival);
  [[nodiscard]] bool wait_for(std::uint32_t l,
                              std::uint32_t step,
                              std::uint32_t delay,
                              ir::Nanos& arrival);
  void start(std::uint32_t l);
  void finish(std::uint32_t l);
  void wake_who_waits_for(std::uint32_t step);
  void set_alarm(std::uint32_t l, ir::Nanos time);
  bool grant_channels();
  void transfer_starts_or_ends(std::uint32_t l, int change);
  void note_device(std::uint32_t device);
  void update_speeds();
  void set_speed(std::uint32_t l, scheduler::Speed speed);
  void note_mini_batch(std::uint32_t l);

  [[nodiscard]] ir::TaskId task_of(std::uint32_t l) const {
    return program_.schedule().lanes[l].order[lanes_[l].next - program_.lanes()[l].begin];
  }

  const Program& program_;
  const CostTable& costs_;
  ReplayState& state_;
  scheduler::FairSharing sharing_;
  scheduler::LinkChannels channels_;
  ir::Nanos now_ = 0;
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> runnable_;
  std::priority_queue<Alarm, std::vector<Alarm>, std::greater<>> alarms_;
  std::vector<scheduler::ChannelId> touched_;  ///< asked for or set free at this instant
  std::vector<ir::LaneId> sharing_lanes_;      ///< under way, ascending
  bool sharing_changed_ = false;
  std::vector<std::uint32_t> transfers_;     ///< by DeviceId: under way, from or to it
  std::vector<std::uint32_t> compute_lane_;  ///< by DeviceId
  std::vector<bool> device_changed_;
  std::vector<std::uint32_t> changed_devices_;
  std::vector<bool> has_started_;  ///< by mini-batch
};

}  // namespace xpipe::simulator
