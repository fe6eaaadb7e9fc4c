#include "app/plan_search.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "app/compiled_run.h"
#include <fmt/format.h>

#include "scheduler/layout.h"

namespace xpipe::app {

namespace {

/// Rounds in which a cut's memory limits are lowered by what the simulation holds beyond the
/// policy's promises (message buffers above all).
constexpr int kMemoryRounds = 6;

/// Mini-batches after which everything that is in flight at once has been, and as many again: a
/// pipeline holds as many micro-batches as it has devices.
std::uint32_t mini_batches_for(const RunRequest& run, std::uint32_t devices) {
  const std::uint32_t t = run.policy->whole_mini_batch ? 1 : run.micro_batches;
  return std::max(4U, (2 * devices + t - 1) / t + 2);
}

std::vector<PeakMemory> peaks_of(const std::vector<simulator::DeviceMemory>& memory,
                                 const ir::Cluster& cluster) {
  std::vector<PeakMemory> peaks;
  peaks.reserve(memory.size());
  for (std::size_t d = 0; d < memory.size(); ++d) {
    peaks.push_back({.bytes = memory[d].peak,
                     .time = memory[d].peak_time,
                     .by_kind = memory[d].at_peak,
                     .limit = cluster.devices[d].memory_bytes});
  }
  return peaks;
}

/// Cuts, simulates, and where a device holds more than it was promised to, cuts again with as much
/// less memory.
ir::Result<Candidate> best_cut(const Workload& workload,
                               const PlanCutter& cutter,
                               const RunRequest& run,
                               std::uint32_t stages) {
  std::vector<std::optional<ir::Bytes>> limits;
  limits.reserve(stages);
  for (std::uint32_t k = 0; k < stages; ++k) {
    limits.push_back(workload.cluster.devices[k].memory_bytes);
  }
  std::optional<Candidate> best;
  for (int round = 0; round < kMemoryRounds; ++round) {
    ir::Result<StageCut> cut = cutter.cut(run, stages, limits);
    if (!cut.ok()) {
      return cut.error();
    }
    if (best && cut.value().partition == best->cut.partition) {
      break;
    }
    if (round > 0) {
      cut.value().exact = false;
      cut.value().reason =
          "memory: cuts were tried until the simulation, buffers included, fitted the devices";
    }
    const std::vector<ir::Bytes> promised = cut.value().held_bytes;
    ir::Result<Candidate> tried = simulate_cut(workload, run, std::move(cut).value());
    if (!tried.ok()) {
      return tried.error();
    }
    const Candidate& candidate = tried.value();
    const bool fits = candidate.fits();
    for (std::uint32_t k = 0; k < stages; ++k) {
      if (candidate.memory[k].shortfall() > 0) {
        const ir::Bytes beyond = std::max<ir::Bytes>(1, candidate.memory[k].bytes - promised[k]);
        limits[k] =
            std::max<ir::Bytes>(0, std::min(*limits[k] - 1, *candidate.memory[k].limit - beyond));
      }
    }
    if (!best || candidate.shortfall < best->shortfall) {
      best = std::move(tried).value();
    }
    if (fits) {
      break;
    }
  }
  return std::move(*best);
}

/// Moves single boundaries of a cut as long as the simulation gets faster. The cut's formula
/// lets transfers hide behind compute; where few micro-batches are in flight they do not.
Candidate moved_by_simulation(const Workload& workload, Candidate best, std::uint64_t& budget) {
  constexpr std::int64_t kSteps[] = {1, -1, 2, -2, 4, -4};
  const double first = best.samples_per_s.value_or(0.0);
  bool is_spent = false;
  bool moved = true;
  while (moved) {
    moved = false;
    const scheduler::Partition from = best.cut.partition;
    for (std::size_t k = 0; k + 1 < from.size(); ++k) {
      for (const std::int64_t step : kSteps) {
        const std::uint64_t cost = best.metrics.transfers + 1;
        const std::int64_t left = from[k] + step;
        const std::int64_t right = from[k + 1] - step;
        if (left < 1 || right < 1) {
          continue;
        }
        if (budget < cost) {
          is_spent = true;
          continue;
        }
        budget -= cost;
        StageCut cut = best.cut;
        cut.partition = from;
        cut.partition[k] = static_cast<std::uint32_t>(left);
        cut.partition[k + 1] = static_cast<std::uint32_t>(right);
        ir::Result<Candidate> tried = simulate_cut(workload, best.run, std::move(cut));
        if (tried.ok() && tried.value().fits() &&
            tried.value().samples_per_s.value_or(0.0) >
                best.samples_per_s.value_or(0.0) * (1.0 + kAsFast)) {
          best = std::move(tried).value();
          moved = true;
        }
      }
    }
  }
  const double gain = first > 0 ? best.samples_per_s.value_or(0.0) / first - 1.0 : 0.0;
  if (gain > 0) {
    best.cut.exact = false;
    best.cut.reason = fmt::format(
        "boundaries were moved while the simulation got faster: {:.1f} % beyond the cut with the "
        "fastest slowest stage or transfer; {}",
        100 * gain, is_spent ? "there may be better ones" : "no single move is better");
  }
  return best;
}

/// Moves the boundaries of the best of each policy on each number of stages; of equals, of that
/// with the fewest micro-batches. Requires: candidates sorted by comes_before().
void move_boundaries(const Workload& workload, std::vector<Candidate>& candidates) {
  constexpr std::uint64_t kTransfers = 100'000;  // simulated in all: half a second or so
  std::uint64_t budget = kTransfers;
  std::vector<std::pair<const scheduler::Policy*, std::uint32_t>> seen;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::pair key(candidates[i].run.policy, candidates[i].workload.stages);
    if (!candidates[i].fits() || std::ranges::find(seen, key) != seen.end()) {
      continue;
    }
    seen.push_back(key);
    std::size_t chosen = i;
    for (std::size_t other = i + 1; other < candidates.size(); ++other) {
      const Candidate& c = candidates[other];
      if (std::pair(c.run.policy, c.workload.stages) == key && c.fits() &&
          c.samples_per_s.value_or(0.0) >=
              candidates[i].samples_per_s.value_or(0.0) * (1.0 - kAsFast) &&
          c.micro_batches < candidates[chosen].micro_batches) {
        chosen = other;
      }
    }
    candidates[chosen] = moved_by_simulation(workload, std::move(candidates[chosen]), budget);
  }
}

bool comes_before(const Candidate& a, const Candidate& b) {
  const auto key = [](const Candidate& c) {
    return std::tuple(c.shortfall, -c.samples_per_s.value_or(0.0), c.peak_memory());
  };
  return key(a) < key(b);
}

/// The fastest first, in front of them the plan.
void rank(std::vector<Candidate>& candidates) {
  std::ranges::stable_sort(candidates, comes_before);
  const double fastest = candidates.front().samples_per_s.value_or(0.0);
  std::size_t best = 0;
  const auto key = [](const Candidate& c) {
    return std::tuple(c.staleness, c.micro_batches, c.peak_memory());
  };
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    if (candidates[i].fits() && candidates.front().fits() &&
        candidates[i].samples_per_s.value_or(0.0) >= fastest * (1.0 - kAsFast) &&
        key(candidates[i]) < key(candidates[best])) {
      best = i;
    }
  }
  std::rotate(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(best),
              candidates.begin() + static_cast<std::ptrdiff_t>(best) + 1);
}

}  // namespace

double Candidate::ns_per_mini_batch() const {
  return steady.found() ? static_cast<double>(steady.period_ns) / steady.period
                        : static_cast<double>(metrics.makespan) / run.mini_batches;
}

ir::Bytes Candidate::peak_memory() const {
  ir::Bytes most = 0;
  for (const PeakMemory& peak : memory) {
    most = std::max(most, peak.bytes);
  }
  return most;
}

ir::Result<Candidate> simulate_cut(const Workload& workload, const RunRequest& run, StageCut cut) {
  Candidate candidate{.run = run, .workload = workload};
  candidate.workload.profile = cut.profile;
  candidate.workload.partition = cut.partition;
  candidate.workload.stages = static_cast<std::uint32_t>(cut.partition.size());
  candidate.cut = std::move(cut);
  ir::Result<scheduler::Layout> layout =
      scheduler::resolve_layout({.stages = candidate.workload.stages,
                                 .devices = std::nullopt,
                                 .placement = {},
                                 .replicas = candidate.cut.replicas});
  if (!layout.ok()) {
    return layout.error();
  }
  candidate.workload.placement = layout.value().by_stage();
  candidate.workload.passes.layout = std::move(layout).value();
  const scheduler::Policy& policy = *run.policy;
  candidate.micro_batches = policy.whole_mini_batch ? 1 : run.micro_batches;
  ir::Result<scheduler::StagedModel> model = staged_model(
      candidate.workload, run.micro_batches,
      {.whole_mini_batch = policy.whole_mini_batch, .extrapolation = policy.extrapolation});
  if (!model.ok()) {
    return model.error();
  }
  candidate.model = std::move(model).value();
  CompiledRun compiled(candidate.run, candidate.model.graph, candidate.workload.passes);
  const ir::Result<simulator::LongRun> replayed = compiled.replay(candidate.model.costs, false);
  if (!replayed.ok()) {
    return replayed.error();
  }
  const ir::Schedule& schedule = replayed.value().base.schedule;
  const ir::Timeline& timeline = replayed.value().base.timeline;
  candidate.steady = replayed.value().steady;
  candidate.metrics = simulator::measure(schedule, timeline);
  candidate.memory = peaks_of(simulator::memory_over_time(schedule, timeline, candidate.model.costs,
                                                          simulator::MemoryCurve::Drop),
                              workload.cluster);
  for (const PeakMemory& peak : candidate.memory) {
    candidate.shortfall = std::max(candidate.shortfall, peak.shortfall());
  }
  if (const auto options = scheduler::resolve_options(policy, run.options); options.ok()) {
    const scheduler::Promises promises =
        policy.promises({.stages = candidate.workload.stages,
                         .micro_batches = candidate.micro_batches,
                         .mini_batches = candidate.run.mini_batches,
                         .options = options.value(),
                         .replicas = candidate.cut.replicas});
    for (const scheduler::StagePromise& stage : promises.stages) {
      candidate.staleness = std::max(candidate.staleness, stage.forward_staleness);
    }
  }
  const double samples = candidate.workload.samples_per_mini_batch(run.micro_batches);
  const double time = candidate.ns_per_mini_batch();
  if (time > 0) {
    candidate.samples_per_s = samples * 1e9 / time;
  }
  return candidate;
}

ir::Result<PlanOutcome> search_plans(const Workload& workload, const PlanRequest& request) {
  const PlanCutter cutter(workload, request.search);
  PlanOutcome outcome;
  std::optional<ir::Error> refused;
  for (const std::uint32_t stages : request.stages) {
    std::vector<const scheduler::Policy*> whole;  // done already: their T is 1
    for (RunRequest run : request.runs) {
      if (run.policy->whole_mini_batch) {
        if (std::ranges::find(whole, run.policy) != whole.end()) {
          continue;
        }
        whole.push_back(run.policy);
        run.micro_batches = 1;
      }
      if (run.mini_batches == 0) {
        run.mini_batches =
            mini_batches_for(run, request.cut ? std::accumulate(request.cut->replicas.begin(),
                                                                request.cut->replicas.end(), 0U)
                                              : stages);
      }
      ir::Result<Candidate> candidate = ir::Error{};
      if (request.cut) {
        candidate = simulate_cut(workload, run, *request.cut);
      } else {
        candidate = best_cut(workload, cutter, run, stages);
      }
      if (candidate.ok()) {
        outcome.candidates.push_back(std::move(candidate).value());
        continue;
      }
      if (candidate.error().kind != ir::ErrorKind::Usage &&
          candidate.error().kind != ir::ErrorKind::Illegal) {
        return candidate.error();
      }
      refused = candidate.error();
      outcome.refused.push_back(fmt::format("{}, {} stages, T = {}: {}", run.policy->name, stages,
                                            run.micro_batches, candidate.error().to_string()));
    }
  }
  if (outcome.candidates.empty()) {
    return *refused;
  }
  std::ranges::stable_sort(outcome.candidates, comes_before);
  if (!request.cut) {
    move_boundaries(workload, outcome.candidates);
  }
  rank(outcome.candidates);
  return outcome;
}

std::vector<std::uint32_t> micro_batches_to_try(std::uint32_t samples) {
  constexpr std::size_t kFewest = 4;
  std::vector<std::uint32_t> divisors;
  std::vector<std::uint32_t> powers;
  for (std::uint32_t t = 1; t <= samples; ++t) {
    if (samples % t == 0) {
      divisors.push_back(t);
    }
    if ((t & (t - 1)) == 0) {
      powers.push_back(t);
    }
  }
  return divisors.size() < kFewest ? powers : divisors;
}

}  // namespace xpipe::app
