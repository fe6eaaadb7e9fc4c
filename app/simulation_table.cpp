#include <algorithm>
#include <map>
#include <utility>

#include "app/run_summary.h"
#include "app/simulation.h"
#include "app/table.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace xpipe::app {

namespace {

using ir::index_of;
using ir::Nanos;

constexpr std::size_t kLineWidth = 100;

double share(Nanos part, Nanos whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

std::string range_text(std::int64_t low, std::int64_t high) {
  return low == high ? std::to_string(low) : fmt::format("{}-{}", low, high);
}

/// "4"; "1 (4)" where 4 were asked for and the policy works on whole mini-batches.
std::string t_text(const RunSummary& run) {
  return run.micro_batches == run.asked_micro_batches
             ? std::to_string(run.micro_batches)
             : fmt::format("{} ({})", run.micro_batches, run.asked_micro_batches);
}

std::string run_text(const RunSummary& run) {
  return fmt::format("{}, T = {}", run.policy, t_text(run));
}

/// The fastest run; nullptr where there is nothing to choose from or a rate is missing.
const RunSummary* fastest(const std::vector<Simulation>& runs) {
  const RunSummary* best = nullptr;
  for (const Simulation& run : runs) {
    if (!run.summary.samples_per_s) {
      return nullptr;
    }
    if (best == nullptr || *run.summary.samples_per_s > *best->samples_per_s) {
      best = &run.summary;
    }
  }
  return best;
}

std::string speed_table(const std::vector<Simulation>& runs) {
  const RunSummary* best = fastest(runs);
  Table table(
      {"<policy", "T", "ms/mini-batch", "samples/s", "speed", "busy", "bubble", "comm", "memory"});
  for (const Simulation& simulation : runs) {
    const RunSummary& run = simulation.summary;
    table.add_row(
        {run.policy, t_text(run), ms_text(run.steady.ns_per_mini_batch()),
         rate_text(run.samples_per_s),
         best != nullptr ? fmt::format("{:.3f}", *run.samples_per_s / *best->samples_per_s) : "-",
         percent_text(run.busiest_utilization), percent_text(run.bubble_of_total),
         percent_text(run.exposed_of_total),
         run.peak_memory > 0 ? bytes_text(run.peak_memory) : "-"});
  }
  return table.to_string() +
         "ms/mini-batch, samples/s: in steady state. speed: over the fastest. Over the whole run:\n"
         "busy: the busiest device. bubble: idle time of all devices; of that, comm: while the "
         "message\nwaited for was on its way. memory: the peak of the fullest device.\n";
}

/// What a part of the critical path is spent on, for people.
std::string place_of(const ir::Schedule& schedule, ir::TaskId id) {
  const ir::Lane& lane = schedule.lane(schedule.task(id).lane);
  return lane.kind == ir::LaneKind::Compute
             ? fmt::format("device {}", index_of(lane.device))
             : fmt::format("link {}>{}", index_of(lane.device), index_of(lane.peer));
}

/// The device or link that has most of the critical path.
std::string most_of_path(const Simulation& run) {
  std::map<std::string, Nanos> times;
  const std::vector<ir::Span>& path = run.critical_path.tasks;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const Nanos until = i + 1 < path.size() ? path[i + 1].start : path[i].end;
    times[place_of(run.schedule, path[i].task)] += until - path[i].start;
  }
  const auto most = std::ranges::max_element(times, {}, &decltype(times)::value_type::second);
  return most == times.end() ? "-"
                             : fmt::format("{} ({})", most->first,
                                           percent_text(share(most->second, path.back().end)));
}

std::string path_table(const std::vector<Simulation>& runs) {
  std::vector<std::string> heads = {"<policy", "T"};
  std::vector<std::size_t> kinds;
  for (std::size_t kind = 0; kind < ir::kTaskKinds; ++kind) {
    if (std::ranges::any_of(
            runs, [kind](const Simulation& run) { return run.critical_path.by_kind[kind] > 0; })) {
      kinds.push_back(kind);
      heads.emplace_back(ir::kind_name(static_cast<ir::TaskKind>(kind)));
    }
  }
  const bool latency = std::ranges::any_of(
      runs, [](const Simulation& run) { return run.critical_path.latency > 0; });
  if (latency) {
    heads.emplace_back("latency");
  }
  heads.emplace_back("<most of it on");
  Table table(std::move(heads));
  for (const Simulation& run : runs) {
    std::vector<std::string> row = {run.summary.policy, t_text(run.summary)};
    for (const std::size_t kind : kinds) {
      row.push_back(percent_text(share(run.critical_path.by_kind[kind], run.metrics.makespan)));
    }
    if (latency) {
      row.push_back(percent_text(share(run.critical_path.latency, run.metrics.makespan)));
    }
    row.push_back(most_of_path(run));
    table.add_row(std::move(row));
  }
  return "\ncritical path: where the time of the whole run goes\n" + table.to_string();
}

std::string weights_table(const std::vector<Simulation>& runs) {
  using Stage = simulator::StageStaleness;
  Table table({"<policy", "T", "<staleness F", "<staleness B", "<predict F", "<predict B",
               "<weights held", "<in flight"});
  for (const Simulation& run : runs) {
    const auto column = [&run](auto&& of) {
      std::vector<std::string> values;
      values.reserve(run.staleness.size());
      for (const Stage& stage : run.staleness) {
        values.push_back(of(stage));
      }
      return list_text(values);
    };
    std::vector<std::string> in_flight;
    in_flight.reserve(run.in_flight.size());
    for (const std::uint32_t count : run.in_flight) {
      in_flight.push_back(std::to_string(count));
    }
    table.add_row(
        {run.summary.policy, t_text(run.summary),
         column([](const Stage& s) { return range_text(s.forward_min, s.forward_max); }),
         column([](const Stage& s) { return range_text(s.backward_min, s.backward_max); }),
         column([](const Stage& s) { return std::to_string(s.predict_forward); }),
         column([](const Stage& s) { return std::to_string(s.predict_backward); }),
         column([](const Stage& s) { return std::to_string(s.peak.versions_held); }),
         list_text(in_flight)});
  }
  return "\nweights and micro-batches, by stage (one number: all alike)\n" + table.to_string() +
         "staleness: updates missing from the weights that a forward (F) or backward (B) reads.\n"
         "predict: steps that these weights are predicted ahead. weights held, in flight: at the "
         "peak.\n";
}

/// "link 0<>1, link 1<>2", broken into lines.
std::string wrapped(const std::string& head, const std::vector<std::string>& words) {
  std::string text;
  std::string line = head;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i] + (i + 1 < words.size() ? "," : "");
    if (line.size() + 1 + word.size() > kLineWidth) {
      text += line + "\n ";
      line.clear();
    }
    line += " " + word;
  }
  return text + line + "\n";
}

std::string what_if_table(const Simulation& run) {
  const WhatIf& what_if = *run.what_if;
  std::string text =
      fmt::format("\n{}: if one thing was {:g} % faster\n", run_text(run.summary), what_if.percent);
  Table table(
      {"<what", "ms/mini-batch", "speed-up", "makespan ms", "speed-up", "on critical path"});
  std::vector<std::string> without;
  for (const WhatIfRow& row : what_if.rows) {
    if (!row.makes_a_difference()) {
      without.push_back(row.name);
      continue;
    }
    table.add_row({row.name, ms_text(row.steady.ns_per_mini_batch()),
                   row.steady_speed_up ? fmt::format("{:.2f} %", 100 * *row.steady_speed_up) : "-",
                   ms_text(row.makespan), fmt::format("{:.2f} %", 100 * row.makespan_speed_up),
                   percent_text(row.path_share)});
  }
  if (without.size() < what_if.rows.size()) {
    text += table.to_string();
  }
  if (!without.empty()) {
    text += wrapped("no difference:", without);
  }
  return text;
}

std::string what_if_tables(const std::vector<Simulation>& runs) {
  std::string text;
  for (const Simulation& run : runs) {
    if (run.what_if.has_value()) {
      text += what_if_table(run);
    }
  }
  if (!text.empty()) {
    text +=
        "Each row is a replay of the same schedule on the changed costs. speed-up: time before / "
        "time\nafter - 1, in steady state and of the whole run. A device is its compute, a link "
        "its bandwidth\nand latency.\n";
  }
  return text;
}

}  // namespace

std::string to_table(const Workload& workload, const std::vector<Simulation>& runs) {
  const auto mini_batches = runs.front().summary.mini_batches;
  std::string text =
      fmt::format("{} ({})\n{} stages on {} devices, layers per stage {}; {} mini-batches",
                  workload.profile.name, workload.profile.provenance, workload.stages,
                  runs.front().summary.devices, fmt::join(workload.partition, ","), mini_batches);
  if (workload.batch_size.has_value()) {
    text += fmt::format(" of {} samples", *workload.batch_size);
  }
  text +=
      "\n\n" + speed_table(runs) + path_table(runs) + weights_table(runs) + what_if_tables(runs);
  std::vector<std::string> said;
  for (const Simulation& run : runs) {
    for (const std::string& note : run.notes) {
      if (std::find(said.begin(), said.end(), note) == said.end()) {
        text += (said.empty() ? "\nnote: " : "note: ") + note + "\n";
        said.push_back(note);
      }
    }
  }
  return text;
}

}  // namespace xpipe::app
