// Bytes a task of the schedule and of its replay, counted at operator new.
//
//   schedule   what the compiled schedule holds           aim: at most 64
//   compile    the most that is alive while compiling, the schedule included
//   replay     what a prepared replay holds: program, cost table, ends   aim: at most 64
//   timeline   what simulate() returns
//   simulate   the most that is alive while simulating, the timeline included
//
// The figures are exact and the same at every run.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "bench/simulator_workload.h"
#include <malloc.h>

#include "simulator/program.h"
#include "simulator/replay.h"
#include "simulator/simulate.h"

namespace {

std::size_t alive = 0;
std::size_t most = 0;

/// Bytes alive when it was made, and what came on top since.
class Watch {
 public:
  Watch() : before_(alive) { most = alive; }

  [[nodiscard]] std::size_t held() const { return alive - before_; }

  [[nodiscard]] std::size_t peak() const { return most - before_; }

 private:
  std::size_t before_;
};

void* counted(std::size_t size) {
  void* block = std::malloc(size);
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  alive += malloc_usable_size(block);
  most = std::max(most, alive);
  return block;
}

void uncounted(void* block) {
  alive -= malloc_usable_size(block);
  std::free(block);
}

void report(const std::string& name, const xpipe::bench::Work& work) {
  const Watch compiling;
  const xpipe::ir::Schedule schedule = xpipe::bench::compiled(work);
  const std::size_t compile_peak = compiling.peak();
  const std::size_t schedule_bytes = compiling.held();
  const auto tasks = static_cast<double>(schedule.tasks.size());

  // Half duplex: the replay that needs the most, with queues at its channels.
  const auto costs = xpipe::bench::costs_of(work.request.stages, xpipe::ir::Duplex::Half);
  std::size_t replay_bytes = 0;
  {
    const Watch replaying;
    const xpipe::simulator::Program program(schedule);
    const auto table = xpipe::simulator::price(program, costs);
    xpipe::simulator::ReplayState state;
    XPIPE_CHECK(xpipe::simulator::replay(program, table, state).ok());
    replay_bytes = replaying.held();
  }
  const Watch simulating;
  const xpipe::ir::Timeline timeline = xpipe::simulator::simulate(schedule, costs);
  std::printf("%-22s %9zu %9.1f %9.1f %9.1f %9.1f %9.1f\n", name.c_str(), schedule.tasks.size(),
              static_cast<double>(schedule_bytes) / tasks,
              static_cast<double>(compile_peak) / tasks, static_cast<double>(replay_bytes) / tasks,
              static_cast<double>(simulating.held()) / tasks,
              static_cast<double>(simulating.peak()) / tasks);
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size);
}

void operator delete(void* block) noexcept {
  uncounted(block);
}

void operator delete(void* block, std::size_t) noexcept {
  uncounted(block);
}

int main() {
  using xpipe::bench::one_f_one_b;
  using xpipe::bench::work_of;
  std::printf("%-22s %9s %9s %9s %9s %9s %9s\n", "schedule", "tasks", "schedule", "compile",
              "replay", "timeline", "simulate");
  report("1F1B 8x64", one_f_one_b({8, 64}));
  report("1F1B 16x256", one_f_one_b({16, 256}));
  report("1F1B 32x1024", one_f_one_b({32, 1024}));
  report("1F1B 64x4096", one_f_one_b({64, 4096}));
  for (const char* policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    report(std::string(policy) + " 8x8x2000", work_of(policy, {8, 8}, 2000, {}));
  }
  return 0;
}
