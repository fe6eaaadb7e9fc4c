// Planned against measured on the emulated device: four policies, T in {1, 2, 4, 8}, 2 to 8 stages.
//
//   ./dev bench fidelity_emulated [TASK_US [JOBS [MINI_BATCHES]]]     (default 20000 8 3)
//
// Each combination is simulated and then run with real threads whose tasks sleep for as long as the
// plan says; JOBS combinations run at once (threads that sleep need no core). A forward takes
// TASK_US, a backward twice that; a message takes a tenth of TASK_US on its link and arrives a
// twentieth later. Then, for shorter and shorter tasks, where the difference comes from, one
// combination at a time:
//
//   timer    a task's measured time minus its modelled one: how late its thread woke up
//   engine   from the moment when everything that a task waits for was there to its start
//
// Prints Markdown tables, as docs/fidelity.md shows them.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "executor/cpu/cpu_pool.h"
#include "executor/cpu/emulated_backend.h"
#include "executor/engine.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"
#include "scheduler/cost_model.h"
#include "simulator/simulate.h"

namespace {

using xpipe::ir::index_of;
using xpipe::ir::Nanos;

constexpr xpipe::ir::Bytes kMessageBytes = 1'000'000;

struct Combination {
  std::string policy;
  std::uint32_t stages = 1;
  std::uint32_t micro_batches = 1;
  std::uint32_t mini_batches = 1;
  Nanos forward = 0;  ///< of one micro-batch
};

struct Result {
  Nanos planned = 0;
  Nanos measured = 0;
  std::vector<Nanos> timer;   ///< by task that takes time
  std::vector<Nanos> engine;  ///< by task

  /// Of the makespan, measured over planned less one.
  [[nodiscard]] double error() const {
    return static_cast<double>(measured) / static_cast<double>(planned) - 1;
  }
};

const xpipe::scheduler::PolicyRegistry& registry() {
  static const xpipe::scheduler::PolicyRegistry all = [] {
    xpipe::scheduler::PolicyRegistry registry;
    xpipe::policies::register_all(registry);
    return registry;
  }();
  return all;
}

/// Where the run was later than its own inputs allowed.
void measure_overheads(const xpipe::ir::Schedule& schedule,
                       const xpipe::scheduler::CostModel& costs,
                       const xpipe::ir::Timeline& run,
                       Result& result) {
  std::vector<Nanos> ready(schedule.tasks.size(), 0);
  for (const xpipe::ir::Edge& edge : schedule.edges) {
    Nanos& at = ready[index_of(edge.to)];
    at = std::max(at, run.spans[index_of(edge.from)].end +
                          xpipe::scheduler::edge_delay(costs, schedule, edge));
  }
  for (const xpipe::ir::Lane& lane : schedule.lanes) {
    for (std::size_t i = 1; i < lane.order.size(); ++i) {
      Nanos& at = ready[index_of(lane.order[i])];
      at = std::max(at, run.spans[index_of(lane.order[i - 1])].end);
    }
  }
  for (const xpipe::ir::Span& span : run.spans) {
    const Nanos modelled = xpipe::scheduler::duration(costs, schedule, schedule.task(span.task));
    if (modelled > 0) {
      result.timer.push_back(span.end - span.start - modelled);
    }
    result.engine.push_back(span.start - ready[index_of(span.task)]);
  }
}

Result measure(const Combination& what) {
  const auto policy = registry().find(what.policy);
  XPIPE_CHECK(policy.ok()) << what.policy;
  // The unit of these is the mini-batch; it costs what its micro-batches do.
  const std::uint32_t unit = policy.value()->whole_mini_batch ? what.micro_batches : 1;
  xpipe::scheduler::StageGraph graph = xpipe::scheduler::chain_of(what.stages);
  for (xpipe::scheduler::StageLink& link : graph.links) {
    link.bytes = kMessageBytes * unit;
  }
  const auto schedule = xpipe::scheduler::compile(*policy.value(),
                                                  {.stages = what.stages,
                                                   .micro_batches = what.micro_batches,
                                                   .mini_batches = what.mini_batches,
                                                   .options = {}},
                                                  graph);
  XPIPE_CHECK(schedule.ok()) << schedule.status().error().to_string();
  const Nanos transfer = std::max<Nanos>(what.forward / 10, 1);
  const xpipe::scheduler::CostModel costs = xpipe::scheduler::uniform_costs(
      what.stages, what.stages, what.forward * unit, 2 * what.forward * unit,
      {.bandwidth_bytes_per_s =
           static_cast<double>(kMessageBytes) * 1e9 / static_cast<double>(transfer),
       .latency = what.forward / 20});
  auto pool = xpipe::executor::CpuPool::create({.devices = what.stages});
  XPIPE_CHECK(pool.ok()) << pool.status().error().to_string();
  xpipe::executor::EmulatedBackend backend(*pool.value(), costs);
  const auto run =
      xpipe::executor::run(schedule.value(), xpipe::executor::no_op_handlers(), backend);
  XPIPE_CHECK(run.ok()) << run.status().error().to_string();
  Result result;
  result.planned = xpipe::ir::makespan(xpipe::simulator::simulate(schedule.value(), costs));
  result.measured = xpipe::ir::makespan(run.value());
  measure_overheads(schedule.value(), costs, run.value(), result);
  return result;
}

/// In the order of `what`, `jobs` at a time.
std::vector<Result> measure_all(const std::vector<Combination>& what, std::uint32_t jobs) {
  std::vector<Result> results(what.size());
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> threads;
  threads.reserve(jobs);
  for (std::uint32_t job = 0; job < jobs; ++job) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < what.size(); i = next++) {
        results[i] = measure(what[i]);
      }
    });
  }
  threads.clear();
  return results;
}

template <typename Value>
Value quantile(std::vector<Value> values, double at) {
  const auto place = static_cast<std::size_t>(at * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(place),
                   values.end());
  return values[place];
}

double micros(Nanos time) {
  return static_cast<double>(time) / 1e3;
}

/// "mean, median, 95th percentile" in us.
std::string spread(const std::vector<Nanos>& times) {
  const auto sum = std::accumulate(times.begin(), times.end(), 0.0);
  char text[64];
  std::snprintf(text, sizeof(text), "%.1f, %.1f, %.1f",
                sum / 1e3 / static_cast<double>(times.size()), micros(quantile(times, 0.5)),
                micros(quantile(times, 0.95)));
  return text;
}

void print_grid(Nanos task, std::uint32_t jobs, std::uint32_t mini_batches) {
  std::vector<Combination> what;
  for (const char* policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    for (std::uint32_t stages = 2; stages <= 8; ++stages) {
      for (const std::uint32_t micro_batches : {1U, 2U, 4U, 8U}) {
        what.push_back({policy, stages, micro_batches, mini_batches, task});
      }
    }
  }
  const std::vector<Result> results = measure_all(what, jobs);
  std::printf(
      "Makespan, measured over planned less one, in %%: the largest over T in {1, 2, 4, 8}; "
      "forward %.1f ms, %u mini-batches, %u runs at once.\n\n"
      "| policy | D = 2 | 3 | 4 | 5 | 6 | 7 | 8 | median | within 1 %% |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n",
      micros(task) / 1e3, mini_batches, jobs);
  for (std::size_t first = 0; first < what.size(); first += 28) {
    std::printf("| %s |", what[first].policy.c_str());
    std::vector<double> errors;
    for (std::size_t row = first; row < first + 28; row += 4) {
      double worst = 0.0;
      for (std::size_t i = row; i < row + 4; ++i) {
        errors.push_back(100 * results[i].error());
        worst = std::abs(errors.back()) > std::abs(worst) ? errors.back() : worst;
      }
      std::printf(" %.2f |", worst);
    }
    const auto good =
        std::count_if(errors.begin(), errors.end(), [](double e) { return std::abs(e) <= 1.0; });
    std::printf(" %.2f | %d of %zu |\n", quantile(errors, 0.5), static_cast<int>(good),
                errors.size());
  }
}

void print_overheads(std::uint32_t mini_batches) {
  std::printf(
      "\nOne at a time, xpipe, D = 4, T = 4, %u mini-batches; timer and engine in us: mean, median "
      "and "
      "95th percentile over the tasks.\n\n"
      "| forward, us | planned, ms | measured, ms | difference, %% | timer | engine |\n"
      "|---|---|---|---|---|---|\n",
      4 * mini_batches);
  for (const Nanos task : {20'000'000, 5'000'000, 1'000'000, 200'000, 50'000, 10'000}) {
    const Result result = measure({"xpipe", 4, 4, 4 * mini_batches, task});
    std::printf("| %.0f | %.3f | %.3f | %.2f | %s | %s |\n", micros(task),
                micros(result.planned) / 1e3, micros(result.measured) / 1e3, 100 * result.error(),
                spread(result.timer).c_str(), spread(result.engine).c_str());
  }
}

/// The argument at `at`, a number of 1 or more.
std::uint32_t number(int argc, char** argv, int at, std::uint32_t otherwise) {
  if (at >= argc) {
    return otherwise;
  }
  char* end = nullptr;
  const unsigned long value = std::strtoul(argv[at], &end, 10);
  if (*end != '\0' || value == 0 || value > 1'000'000'000) {
    std::fprintf(stderr, "fidelity_emulated: found '%s', expected a number of 1 or more\n",
                 argv[at]);
    std::exit(2);  // NOLINT(concurrency-mt-unsafe): no thread runs yet
  }
  return static_cast<std::uint32_t>(value);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Nanos task = Nanos{number(argc, argv, 1, 20'000)} * 1'000;
    const std::uint32_t jobs = number(argc, argv, 2, 8);
    const std::uint32_t mini_batches = number(argc, argv, 3, 3);
    print_grid(task, jobs, mini_batches);
    print_overheads(mini_batches);
    return 0;
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "fidelity_emulated: %s\n", fault.what());
    return 1;
  }
}
