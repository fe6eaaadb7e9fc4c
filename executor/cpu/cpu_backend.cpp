#include "executor/cpu/cpu_backend.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace xpipe::executor {

namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

/// How long to wait for the last tasks of a run that is given up.
constexpr nanoseconds kLongestGrace = std::chrono::seconds(5);

nanoseconds spin_for(const CpuBackendOptions& options, std::uint32_t devices) {
  if (options.spin) {
    return *options.spin;
  }
  return devices <= std::thread::hardware_concurrency() ? kDefaultSpin : nanoseconds::zero();
}

}  // namespace

ir::Status CpuBackend::begin(const ir::Schedule& schedule) {
  if (schedule.devices > pool_.devices()) {
    return ir::make_error(ir::ErrorKind::Usage, "pool-too-small", "devices",
                          "the schedule has " + std::to_string(schedule.devices) +
                              " devices and the pool has " + std::to_string(pool_.devices()) +
                              " threads; give the pool a thread for each device");
  }
  if (!pool_.wait_idle_for(options_.time_out)) {
    return ir::make_error(ir::ErrorKind::Runtime, "pool-busy", "",
                          "a handler that was left behind after a time-out still runs; the pool "
                          "can be used again when it returns");
  }
  state_->begin_run();
  schedule_ = &schedule;
  run_ = make_run(schedule, state_);
  return {};
}

std::shared_ptr<CpuRun> CpuBackend::make_run(const ir::Schedule& schedule,
                                             std::shared_ptr<StopState> state) const {
  return std::make_shared<CpuRun>(schedule, std::move(state), spin_for(options_, schedule.devices));
}

ir::Status CpuBackend::expect(Event event, const std::string& owner) {
  run_->expect(event.task, owner);
  return {};
}

void CpuBackend::complete(Event event) {
  run_->complete(event.task);
}

void CpuBackend::wait(ir::LaneId lane, Event event) {
  run_->wait(lane, event.task);
}

Event CpuBackend::enqueue(ir::LaneId lane, ir::TaskId task, Work work) {
  run_->enqueue(lane, task, std::move(work));
  return {task};
}

ir::Status CpuBackend::synchronize() {
  run_->release();
  {
    const std::lock_guard lock(released_mutex_);
    released_ = run_.get();
  }
  pool_.start([run = run_](ir::DeviceId device) { run->serve(device); }, schedule_->devices);

  const nanoseconds look_every = std::clamp<nanoseconds>(
      time_out() / 8, std::chrono::milliseconds(1), std::chrono::seconds(1));
  std::uint64_t moves = run_->moves();
  steady_clock::time_point last_move = steady_clock::now();
  while (!pool_.wait_idle_for(look_every)) {
    const steady_clock::time_point now = steady_clock::now();
    if (const std::uint64_t moves_now = run_->moves(); moves_now != moves) {
      moves = moves_now;
      last_move = now;
    } else if (now - last_move >= time_out()) {
      state_->fail(describe_stall(*schedule_, run_->heads(), time_out().count(), run_->owners()));
      run_->wake_all();
      (void)pool_.wait_idle_for(std::min(time_out(), kLongestGrace));
      break;
    }
  }
  const std::lock_guard lock(released_mutex_);
  released_ = nullptr;
  return state_->status();
}

void CpuBackend::stop(ir::Error reason) {
  state_->stop(std::move(reason));
  const std::lock_guard lock(released_mutex_);
  if (released_ != nullptr) {
    released_->wake_all();
  }
}

ir::Timeline CpuBackend::timeline() const {
  return run_ ? run_->timeline() : ir::Timeline{.measured = true, .spans = {}};
}

std::optional<steady_clock::time_point> CpuBackend::origin() const {
  return run_ ? std::optional(run_->origin()) : std::nullopt;
}

}  // namespace xpipe::executor
