// What the executor itself costs: runs of tasks that do nothing, on the cpu backend.
//
//   chain     one device, one lane: engine and loop, nobody to wait for
//   ping_pong two devices, one micro-batch: every transfer waits for the other device, so each of
//             them is a handover to a thread that spins (spin_us > 0) or sleeps (0)
//   pipeline  two devices kept busy: handovers overlap with work
//
// Counters: ns_per_task and, for ping_pong, ns_per_handover, of the run's own timeline (its
// makespan); the benchmark's time is that of executor::run() as a whole.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "executor/cpu/cpu_backend.h"
#include "executor/cpu/cpu_pool.h"
#include "executor/engine.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"

namespace {

using xpipe::ir::Schedule;

Schedule compiled(const char* policy,
                  std::uint32_t stages,
                  std::uint32_t micro_batches,
                  std::uint32_t mini_batches) {
  xpipe::scheduler::PolicyRegistry registry;
  xpipe::policies::register_all(registry);
  const auto found = registry.find(policy);
  XPIPE_CHECK(found.ok()) << policy;
  auto schedule = xpipe::scheduler::compile(*found.value(),
                                            {.stages = stages,
                                             .micro_batches = micro_batches,
                                             .mini_batches = mini_batches,
                                             .options = {}},
                                            xpipe::scheduler::chain_of(stages));
  XPIPE_CHECK(schedule.ok()) << schedule.status().error().to_string();
  return std::move(schedule).value();
}

/// `handovers`: waits of one device for the other on the critical path; 0: not counted.
void run_schedule(benchmark::State& state, const Schedule& schedule, std::int64_t handovers) {
  auto pool = xpipe::executor::CpuPool::create({.devices = schedule.devices});
  XPIPE_CHECK(pool.ok()) << pool.status().error().to_string();
  xpipe::executor::CpuBackend backend(*pool.value(),
                                      {.spin = std::chrono::microseconds(state.range(0))});
  const xpipe::executor::HandlerTable handlers = xpipe::executor::no_op_handlers();
  std::vector<double> makespans;
  for (auto _ : state) {
    const auto timeline = xpipe::executor::run(schedule, handlers, backend);
    XPIPE_CHECK(timeline.ok()) << timeline.status().error().to_string();
    makespans.push_back(static_cast<double>(xpipe::ir::makespan(timeline.value())));
  }
  std::ranges::sort(makespans);
  const double median = makespans[makespans.size() / 2];
  state.counters["ns_per_task"] = median / static_cast<double>(schedule.tasks.size());
  if (handovers > 0) {
    state.counters["ns_per_handover"] = median / static_cast<double>(handovers);
  }
  state.counters["tasks"] = static_cast<double>(schedule.tasks.size());
}

void chain(benchmark::State& state) {
  run_schedule(state, compiled("gpipe", 1, 1, 2000), 0);
}

void ping_pong(benchmark::State& state) {
  run_schedule(state, compiled("gpipe", 2, 1, 500), 2 * 500);
}

void pipeline(benchmark::State& state) {
  run_schedule(state, compiled("xpipe", 2, 4, 250), 0);
}

}  // namespace

BENCHMARK(chain)->ArgName("spin_us")->Arg(0)->Arg(5)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(ping_pong)
    ->ArgName("spin_us")
    ->Arg(0)
    ->Arg(2)
    ->Arg(5)
    ->Arg(20)
    ->Arg(100)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(pipeline)->ArgName("spin_us")->Arg(0)->Arg(5)->Arg(20)->UseRealTime()->Unit(
    benchmark::kMicrosecond);
BENCHMARK_MAIN();
