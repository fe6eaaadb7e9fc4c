#include "executor/cpu/cpu_run.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace xpipe::executor {

namespace {

using ir::DeviceId;
using ir::index_of;
using ir::TaskId;

/// Between two looks at a flag: leaves the core's pipeline to its sibling.
void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

CpuRun::CpuRun(const ir::Schedule& schedule,
               std::shared_ptr<StopState> state,
               std::chrono::nanoseconds spin)
    : schedule_(schedule),
      state_(std::move(state)),
      spin_(spin),
      programs_(schedule.lanes.size()),
      workers_(schedule.devices),
      done_(schedule.tasks.size()),
      spans_(schedule.tasks.size()) {
  for (const ir::LaneKind kind :
       {ir::LaneKind::Send, ir::LaneKind::Receive, ir::LaneKind::Compute}) {
    for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
      if (schedule.lanes[i].kind == kind) {
        workers_[index_of(schedule.lanes[i].device)].programs.push_back(&programs_[i]);
      }
    }
  }
}

void CpuRun::wait(ir::LaneId lane, TaskId event) {
  programs_[index_of(lane)].waits.push_back(event);
}

void CpuRun::enqueue(ir::LaneId lane, TaskId task, Backend::Work work) {
  Program& program = programs_[index_of(lane)];
  program.items.push_back({.work = std::move(work),
                           .task = task,
                           .waits_end = static_cast<std::uint32_t>(program.waits.size())});
}

void CpuRun::expect(TaskId task, const std::string& owner) {
  owners_.resize(schedule_.devices);
  owners_[index_of(schedule_.lane(schedule_.task(task).lane).device)] = owner;
}

void CpuRun::release() {
  find_waiting_devices();
  origin_ = std::chrono::steady_clock::now();
  released_.store(true, std::memory_order_seq_cst);
}

void CpuRun::complete(TaskId task) {
  external_moves_.fetch_add(1, std::memory_order_relaxed);
  done_[index_of(task)].store(true, std::memory_order_seq_cst);
  // Before the release nobody sleeps yet, and who waits for whom is not known.
  if (released_.load(std::memory_order_seq_cst)) {
    signal_waiting(index_of(task));
  }
}

void CpuRun::find_waiting_devices() {
  waiting_begin_.assign(schedule_.tasks.size() + 1, 0);
  const auto each_wait_across = [this](auto&& fn) {
    for (std::size_t lane = 0; lane < programs_.size(); ++lane) {
      const DeviceId device = schedule_.lanes[lane].device;
      for (const TaskId event : programs_[lane].waits) {
        if (schedule_.lane(schedule_.task(event).lane).device != device) {
          fn(index_of(event), device);
        }
      }
    }
  };
  each_wait_across([this](std::uint32_t event, DeviceId) { ++waiting_begin_[event + 1]; });
  for (std::size_t i = 1; i < waiting_begin_.size(); ++i) {
    waiting_begin_[i] += waiting_begin_[i - 1];
  }
  waiting_.resize(waiting_begin_.back());
  std::vector<std::uint32_t> next(waiting_begin_.begin(), waiting_begin_.end() - 1);
  each_wait_across(
      [this, &next](std::uint32_t event, DeviceId device) { waiting_[next[event]++] = device; });
}

void CpuRun::serve(DeviceId device) {
  Worker& worker = worker_of(device);
  while (!stopping()) {
    const std::uint32_t seen = worker.signals.load(std::memory_order_seq_cst);
    const auto ready =
        std::ranges::find_if(worker.programs, [this](Program* p) { return head_ready(*p); });
    if (ready != worker.programs.end()) {
      if (start_head(worker, **ready)) {
        end_head(worker, **ready);
      }
      continue;
    }
    if (all_done(worker)) {
      return;
    }
    sleep(worker, seen);
  }
}

bool CpuRun::all_done(const Worker& worker) {
  return std::ranges::all_of(worker.programs, [](const Program* program) {
    return program->head.load(std::memory_order_relaxed) == program->items.size();
  });
}

bool CpuRun::head_ready(Program& program) const {
  const std::uint32_t head = program.head.load(std::memory_order_relaxed);
  if (head == program.items.size()) {
    return false;
  }
  std::uint32_t wait = program.next_wait.load(std::memory_order_relaxed);
  const std::uint32_t end = program.items[head].waits_end;
  const std::uint32_t first = wait;
  while (wait < end && done(program.waits[wait])) {
    ++wait;
  }
  if (wait != first) {
    program.next_wait.store(wait, std::memory_order_relaxed);
  }
  return wait == end;
}

bool CpuRun::start_head(Worker& worker, Program& program) {
  Item& item = program.items[program.head.load(std::memory_order_relaxed)];
  // Only this thread writes these two; others read them to see whether, and where, the run stands.
  const std::uint64_t moves = worker.moves.load(std::memory_order_relaxed);
  worker.running.store(&program, std::memory_order_relaxed);
  worker.moves.store(moves + 1, std::memory_order_relaxed);

  spans_[index_of(item.task)] = {.task = item.task, .start = now(), .end = 0};
  const ir::Status status = item.work(item.task);
  worker.running.store(nullptr, std::memory_order_relaxed);
  if (!status.ok()) {
    worker.moves.store(moves + 2, std::memory_order_relaxed);
    state_->fail(status.error());
    wake_all();
    return false;
  }
  return true;
}

void CpuRun::end_head(Worker& worker, Program& program) {
  const std::uint32_t head = program.head.load(std::memory_order_relaxed);
  const std::uint32_t index = index_of(program.items[head].task);
  spans_[index].end = now();
  worker.moves.store(worker.moves.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  program.head.store(head + 1, std::memory_order_relaxed);
  done_[index].store(true, std::memory_order_seq_cst);
  signal_waiting(index);
}

void CpuRun::signal_waiting(std::uint32_t task) {
  for (std::uint32_t i = waiting_begin_[task]; i < waiting_begin_[task + 1]; ++i) {
    signal(workers_[index_of(waiting_[i])]);
  }
}

void CpuRun::sleep(Worker& worker, std::uint32_t seen) const {
  const auto give_up = std::chrono::steady_clock::now() + spin_;
  do {
    for (int look = 0; look < 16; ++look) {
      if (worker.signals.load(std::memory_order_seq_cst) != seen) {
        return;
      }
      pause_briefly();
    }
    std::this_thread::yield();  // whoever this thread waits for may want this very core
  } while (std::chrono::steady_clock::now() < give_up);
  block(worker, seen, std::nullopt);
}

void CpuRun::block(Worker& worker, std::uint32_t seen, std::optional<ir::Nanos> until) const {
  const auto woken = [this, &worker, seen] {
    return worker.signals.load(std::memory_order_seq_cst) != seen || state_->stopping();
  };
  // signal() counts first and looks at `asleep` then; here it is the other way round. So either it
  // sees a sleeper and takes the mutex, or this thread sees the count (both seq_cst).
  std::unique_lock lock(worker.mutex);
  worker.asleep.store(true, std::memory_order_seq_cst);
  if (until) {
    worker.awake.wait_until(lock, origin_ + std::chrono::nanoseconds(*until), woken);
  } else {
    worker.awake.wait(lock, woken);
  }
  worker.asleep.store(false, std::memory_order_relaxed);
}

void CpuRun::signal(Worker& worker) {
  worker.signals.fetch_add(1, std::memory_order_seq_cst);
  if (worker.asleep.load(std::memory_order_seq_cst)) {
    {
      const std::lock_guard lock(worker.mutex);
    }
    worker.awake.notify_one();
  }
}

void CpuRun::wake_all() {
  for (Worker& worker : workers_) {
    signal(worker);
  }
}

ir::Nanos CpuRun::now() const {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - origin_).count();
}

std::uint64_t CpuRun::moves() const {
  std::uint64_t sum = external_moves_.load(std::memory_order_relaxed);
  for (const Worker& worker : workers_) {
    sum += worker.moves.load(std::memory_order_relaxed);
  }
  return sum;
}

std::vector<std::optional<LaneHead>> CpuRun::heads() const {
  std::vector<std::optional<LaneHead>> heads(programs_.size());
  for (std::size_t lane = 0; lane < programs_.size(); ++lane) {
    const Program& program = programs_[lane];
    const std::uint32_t at = program.head.load(std::memory_order_relaxed);
    if (at == program.items.size()) {
      continue;
    }
    const Worker& worker = workers_[index_of(schedule_.lanes[lane].device)];
    LaneHead head{.task = program.items[at].task,
                  .running = worker.running.load(std::memory_order_relaxed) == &program,
                  .waits_for = std::nullopt};
    const std::uint32_t end = program.items[at].waits_end;
    for (std::uint32_t i = program.next_wait.load(std::memory_order_relaxed); i < end; ++i) {
      if (!done(program.waits[i])) {
        head.waits_for = program.waits[i];
        break;
      }
    }
    heads[lane] = head;
  }
  return heads;
}

ir::Timeline CpuRun::timeline() const {
  ir::Timeline timeline{.measured = true, .spans = {}};
  timeline.spans.reserve(spans_.size());
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const DeviceId device = schedule_.lane(schedule_.tasks[i].lane).device;
    const bool here = owners_.empty() || owners_[index_of(device)].empty();
    if (here && done_[i].load(std::memory_order_acquire)) {
      timeline.spans.push_back(spans_[i]);
    }
  }
  return timeline;
}

}  // namespace xpipe::executor
