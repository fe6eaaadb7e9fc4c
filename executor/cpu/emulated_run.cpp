#include "executor/cpu/emulated_run.h"

#include <algorithm>
#include <utility>

#include <sys/prctl.h>

namespace xpipe::executor {

namespace {

using ir::index_of;
using ir::LaneId;
using ir::Nanos;
using ir::TaskId;

/// The longest sleep in one go, so that no sum of times overflows.
constexpr Nanos kLongestSleep = 3600 * Nanos{1'000'000'000};

/// Lets this thread's timers fire on time: by default Linux may gather those within 50 us.
class PreciseTimers {
 public:
  PreciseTimers() : before_(prctl(PR_GET_TIMERSLACK)) { prctl(PR_SET_TIMERSLACK, 1UL); }

  PreciseTimers(const PreciseTimers&) = delete;
  PreciseTimers& operator=(const PreciseTimers&) = delete;

  ~PreciseTimers() {
    if (before_ > 0) {
      prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(before_));
    }
  }

 private:
  int before_;
};

}  // namespace

EmulatedRun::EmulatedRun(const ir::Schedule& schedule,
                         std::shared_ptr<const scheduler::CostModel> costs,
                         std::shared_ptr<StopState> state)
    : CpuRun(schedule, std::move(state), std::chrono::nanoseconds::zero()),
      costs_(std::move(costs)),
      lanes_(schedule.lanes.size()),
      links_(*costs_, schedule) {}

void EmulatedRun::serve(ir::DeviceId device) {
  const PreciseTimers precise;
  Worker& worker = worker_of(device);
  while (!stopping()) {
    const std::uint32_t seen = worker.signals.load(std::memory_order_seq_cst);
    std::optional<Nanos> wake;
    bool moved = false;
    for (Program* program : worker.programs) {
      moved = advance(worker, *program, wake) || moved;
    }
    if (moved) {
      continue;
    }
    if (all_done(worker)) {
      return;
    }
    if (wake) {
      wake = std::min(*wake, now() + kLongestSleep);
    }
    block(worker, seen, wake);
  }
}

/// Ends the task of a lane when it is over, or starts the next one when it can be; whether it did
/// either. Lowers `wake` to the moment from which more can be done.
bool EmulatedRun::advance(Worker& worker, Program& program, std::optional<Nanos>& wake) {
  LaneState& lane = lanes_[lane_of(program)];
  const auto is_over = [this, &wake](Nanos moment) {
    if (now() >= moment) {
      return true;
    }
    wake = std::min(wake.value_or(moment), moment);
    return false;
  };
  if (lane.running) {
    if (!is_over(lane.until)) {
      return false;
    }
    end(worker, program);
    return true;
  }
  if (!head_ready(program) || !is_over(arrival(program)) || !holds_link(program)) {
    return false;
  }
  const TaskId task = program.items[program.head.load(std::memory_order_relaxed)].task;
  if (!start_head(worker, program)) {
    return true;
  }
  const Nanos duration = scheduler::duration(*costs_, schedule(), schedule().task(task));
  if (duration == 0) {
    end(worker, program);
  } else {
    lane.running = true;
    lane.until = span(task).start + duration;
  }
  return true;
}

/// When the last message that the head waits for is there. Requires: head_ready(program).
Nanos EmulatedRun::arrival(const Program& program) const {
  const std::uint32_t head = program.head.load(std::memory_order_relaxed);
  const Item& item = program.items[head];
  Nanos latest = 0;
  for (std::uint32_t i = head == 0 ? 0 : program.items[head - 1].waits_end; i < item.waits_end;
       ++i) {
    const TaskId from = program.waits[i];
    const Nanos delay = scheduler::edge_delay(*costs_, schedule(), {.from = from, .to = item.task});
    latest = delay > 0 ? std::max(latest, span(from).end + delay) : latest;
  }
  return latest;
}

/// Whether the head may use its link, for which it asks the first time. True where its lane has the
/// link to itself.
bool EmulatedRun::holds_link(const Program& program) {
  const LaneId id{lane_of(program)};
  if (links_.channels_of(id).empty()) {
    return true;
  }
  LaneState& lane = lanes_[index_of(id)];
  if (!lane.asked) {
    lane.asked = true;
    const TaskId send = program.items[program.head.load(std::memory_order_relaxed)].task;
    const std::lock_guard lock(links_mutex_);
    links_.request(id, send, now());
    grant_channels_of(id);
  }
  return lane.granted.load(std::memory_order_acquire);
}

/// Lets those go who are first in line on a channel of `id` and can. Requires: links_mutex_ held.
void EmulatedRun::grant_channels_of(LaneId id) {
  for (const scheduler::ChannelId channel : links_.channels_of(id)) {
    if (const std::optional<TaskId> send = links_.grant(channel)) {
      const LaneId lane = schedule().task(*send).lane;
      lanes_[index_of(lane)].granted.store(true, std::memory_order_release);
      signal(worker_of(schedule().lane(lane).device));
    }
  }
}

void EmulatedRun::end(Worker& worker, Program& program) {
  const LaneId id{lane_of(program)};
  LaneState& lane = lanes_[index_of(id)];
  lane.running = false;
  end_head(worker, program);
  if (!links_.channels_of(id).empty()) {
    lane.asked = false;
    lane.granted.store(false, std::memory_order_relaxed);
    const std::lock_guard lock(links_mutex_);
    links_.release(id);
    grant_channels_of(id);
  }
}

}  // namespace xpipe::executor
