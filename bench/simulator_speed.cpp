// Speed of compiler and simulator, tasks a second on one core, sends and receives counted.
//
//   plan, passes, validate   the parts of compile
//   compile                  policy -> passes -> validated schedule
//   replay                   of a prepared schedule: full duplex, nothing contends
//   replay_contended         the same, both directions of each link contending for it
//   simulate                 prepare, replay, write the timeline
//   end_to_end               compile + prepare + replay, to the makespan
//   growth                   compile and replay from 10^5 to 10^7 tasks
//
// The work is bench/simulator_workload.h's. Counters: tasks_per_s; s_per_task (96n: 96 ns); tasks.
// Times are CPU times of the process; freed memory is kept, as in the binary (app/kept_memory.h),
// so they are without the first touch of a page. --benchmark_filter=replay picks some.
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/simulator_workload.h"
#include <benchmark/benchmark.h>

#include "ir/validate.h"
#include "simulator/program.h"
#include "simulator/replay.h"
#include "simulator/simulate.h"

namespace {

using xpipe::bench::Size;
using xpipe::bench::Work;
using xpipe::ir::Duplex;
using xpipe::ir::Schedule;

/// Runs `once` in the benchmark's loop; it returns the tasks of one turn.
void measure(benchmark::State& state, const std::function<std::size_t()>& once) {
  std::size_t tasks = 0;
  for (auto _ : state) {
    tasks = once();
  }
  const auto all = static_cast<double>(tasks) * static_cast<double>(state.iterations());
  using benchmark::Counter;
  state.counters["tasks"] = static_cast<double>(tasks);
  state.counters["tasks_per_s"] = Counter(all, Counter::kIsRate);
  state.counters["s_per_task"] = Counter(all, Counter::kIsRate | Counter::kInvert);
}

void plan(benchmark::State& state, const Work& work) {
  const std::size_t tasks = xpipe::bench::compiled(work).tasks.size();
  measure(state, [&] {
    const auto made = work.policy->plan(work.request);
    benchmark::DoNotOptimize(made.value().devices.data());
    return tasks;
  });
}

void passes(benchmark::State& state, const Work& work) {
  const auto made = work.policy->plan(work.request);
  measure(state, [&] {
    const auto schedule = xpipe::scheduler::compile_plan(made.value(), work.graph,
                                                         work.policy->name, work.request.options);
    return schedule.value().tasks.size();
  });
}

void validate(benchmark::State& state, const Work& work) {
  const Schedule schedule = xpipe::bench::compiled(work);
  measure(state, [&] {
    XPIPE_CHECK(xpipe::ir::check_legal(schedule).ok());
    return schedule.tasks.size();
  });
}

void compile(benchmark::State& state, const Work& work) {
  measure(state, [&] { return xpipe::bench::compiled(work).tasks.size(); });
}

void replay(benchmark::State& state, const Work& work, Duplex duplex) {
  const Schedule schedule = xpipe::bench::compiled(work);
  const xpipe::simulator::Program program(schedule);
  const auto costs =
      xpipe::simulator::price(program, xpipe::bench::costs_of(work.request.stages, duplex));
  xpipe::simulator::ReplayState memory;
  measure(state, [&] {
    XPIPE_CHECK(xpipe::simulator::replay(program, costs, memory).ok());
    return schedule.tasks.size();
  });
}

void simulate(benchmark::State& state, const Work& work, Duplex duplex) {
  const Schedule schedule = xpipe::bench::compiled(work);
  const auto costs = xpipe::bench::costs_of(work.request.stages, duplex);
  measure(state, [&] { return xpipe::simulator::simulate(schedule, costs).spans.size(); });
}

void end_to_end(benchmark::State& state, const Work& work, Duplex duplex) {
  const auto costs = xpipe::bench::costs_of(work.request.stages, duplex);
  measure(state, [&] {
    const Schedule schedule = xpipe::bench::compiled(work);
    const xpipe::simulator::Program program(schedule);
    xpipe::simulator::ReplayState memory;
    const auto makespan =
        xpipe::simulator::replay(program, xpipe::simulator::price(program, costs), memory);
    XPIPE_CHECK(makespan.ok());
    return schedule.tasks.size();
  });
}

template <typename... Arguments>
void add(const std::string& name, Arguments... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), arguments...)->Unit(benchmark::kMillisecond);
}

void register_all() {
  for (const Size size : {Size{8, 64}, Size{16, 256}, Size{32, 1024}, Size{64, 4096}}) {
    const Work work = xpipe::bench::one_f_one_b(size);
    const std::string name =
        "/" + std::to_string(size.stages) + "x" + std::to_string(size.micro_batches);
    add("plan" + name, plan, work);
    add("passes" + name, passes, work);
    add("validate" + name, validate, work);
    add("compile" + name, compile, work);
    add("replay" + name, replay, work, Duplex::Full);
    add("replay_contended" + name, replay, work, Duplex::Half);
    add("simulate" + name, simulate, work, Duplex::Full);
    add("end_to_end" + name, end_to_end, work, Duplex::Full);
    add("end_to_end_contended" + name, end_to_end, work, Duplex::Half);
  }
  for (const char* policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    add(std::string("compile/") + policy + "/8x8x6000", compile,
        xpipe::bench::work_of(policy, {8, 8}, 6000, {}));
  }
  // 16 stages: 31 compute tasks, sends and receives a micro-batch and stage, near enough 92 in all.
  for (const std::uint32_t micro_batches : {1087U, 10870U, 108700U}) {
    const Work work = xpipe::bench::one_f_one_b({16, micro_batches});
    const std::string name = "/16x" + std::to_string(micro_batches);
    add("growth/compile" + name, compile, work);
    add("growth/replay" + name, replay, work, Duplex::Full);
    add("growth/replay_contended" + name, replay, work, Duplex::Half);
  }
}

}  // namespace

int main(int argc, char** argv) {
  xpipe::bench::keep_freed_memory();
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 2;
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
