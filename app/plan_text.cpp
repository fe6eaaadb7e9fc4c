#include <algorithm>
#include <numeric>
#include <utility>

#include "app/plan_limits.h"
#include "app/plan_output.h"
#include "app/run_summary.h"
#include "app/table.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace xpipe::app {

namespace {

constexpr std::size_t kRunnersUp = 8;
constexpr std::size_t kLongestName = 28;

std::string short_name(const std::string& name) {
  return name.size() <= kLongestName ? name : name.substr(0, kLongestName - 2) + "..";
}

std::string layers_text(const std::vector<std::string>& names) {
  return names.size() == 1 ? short_name(names.front())
                           : short_name(names.front()) + " .. " + short_name(names.back());
}

std::string milliseconds(double ns) {
  return fmt::format("{:.3f}", ns / 1e6);
}

/// "0 (a0)", "0,1" where there are replicas.
std::string devices_text(const Candidate& plan, std::size_t stage) {
  std::vector<std::string> devices;
  for (const ir::DeviceId id : plan.workload.placement[stage]) {
    devices.push_back(std::to_string(ir::index_of(id)));
  }
  const std::string& name =
      plan.workload.cluster.devices[ir::index_of(plan.workload.placement[stage].front())].name;
  return devices.size() == 1 && !name.empty() ? fmt::format("{} ({})", devices.front(), name)
                                              : fmt::format("{}", fmt::join(devices, ","));
}

std::string stage_table(const Candidate& plan) {
  Table table({"stage", "<device", "layers", "ms/micro-batch", "sends", "ms to send", "parameters",
               "peak memory", "of limit", "<from .. to"});
  const auto names = plan.workload.layers_by_stage();
  const std::vector<ir::Nanos> times = stage_times(plan);
  const std::vector<StageTransfer> transfers = transfers_of(plan);
  for (std::size_t k = 0; k < times.size(); ++k) {
    const PeakMemory& peak = stage_memory(plan, k);
    table.add_row(
        {std::to_string(k), devices_text(plan, k), std::to_string(names[k].size()),
         milliseconds(static_cast<double>(times[k])),
         k + 1 < times.size() ? bytes_text(transfers[k].bytes) : "-",
         k + 1 < times.size() ? milliseconds(static_cast<double>(transfers[k].time)) : "-",
         bytes_text(plan.model.costs.stages[k].parameter_bytes), bytes_text(peak.bytes),
         peak.limit
             ? percent_text(static_cast<double>(peak.bytes) / static_cast<double>(*peak.limit))
             : "no limit",
         layers_text(names[k])});
  }
  return table.to_string();
}

std::string t_text(const Candidate& candidate) {
  return std::to_string(candidate.micro_batches);
}

std::string candidates_table(const std::vector<const Candidate*>& candidates) {
  Table table({"<policy", "stages", "T", "samples/s", "ms/mini-batch", "bubble", "staleness",
               "peak memory", "<layers per stage", "<memory"});
  for (const Candidate* c : candidates) {
    std::vector<std::string> layers;
    for (const std::uint32_t count : c->workload.partition) {
      layers.push_back(std::to_string(count));
    }
    table.add_row({c->run.policy->name, std::to_string(c->workload.stages), t_text(*c),
                   rate_text(c->samples_per_s), milliseconds(c->ns_per_mini_batch()),
                   percent_text(c->metrics.bubble_of_total), std::to_string(c->staleness),
                   bytes_text(c->peak_memory()), list_text(layers),
                   c->fits() ? "fits" : "lacks " + bytes_text(c->shortfall)});
  }
  return table.to_string();
}

/// The plan, and the best T of each policy on each number of stages.
std::vector<const Candidate*> runners_up(const PlanOutcome& outcome) {
  std::vector<const Candidate*> shown;
  for (const Candidate& c : outcome.candidates) {
    const bool is_known = std::ranges::any_of(shown, [&c](const Candidate* s) {
      return s->run.policy == c.run.policy && s->workload.stages == c.workload.stages;
    });
    if (!is_known && shown.size() <= kRunnersUp) {
      shown.push_back(&c);
    }
  }
  return shown;
}

/// The fastest that does not fit and would be faster than the plan.
const Candidate* faster_without_limit(const PlanOutcome& outcome) {
  const Candidate& plan = outcome.candidates.front();
  const Candidate* fastest = nullptr;
  for (const Candidate& c : outcome.candidates) {
    if (!c.fits() && c.samples_per_s.value_or(0) > plan.samples_per_s.value_or(0) &&
        (fastest == nullptr || c.samples_per_s > fastest->samples_per_s)) {
      fastest = &c;
    }
  }
  return fastest;
}

std::string why_text(const PlanOutcome& outcome) {
  const Candidate& plan = outcome.candidates.front();
  const PlanLimit limit = limit_of(plan);
  std::string text = "limit: " + limit.text + "\n";
  if (limit.ideal_samples_per_s && plan.samples_per_s) {
    text += fmt::format(
        "ideal: {} samples/s if every device computed all the time; the plan reaches {}\n",
        rate_text(limit.ideal_samples_per_s),
        percent_text(*plan.samples_per_s / *limit.ideal_samples_per_s));
  }
  if (const Candidate* faster = faster_without_limit(outcome)) {
    text += fmt::format(
        "memory: {} on {} stages with T = {} would make {} samples/s and lacks {} "
        "on a device\n",
        faster->run.policy->name, faster->workload.stages, t_text(*faster),
        rate_text(faster->samples_per_s), bytes_text(faster->shortfall));
  }
  text += fmt::format("cut: {} ({})\n", plan.cut.exact ? "exact" : "not exact", plan.cut.reason);
  return text;
}

std::string pipedream_text(const PipedreamCut& found) {
  std::string text = fmt::format("PipeDream's program ({}): {} antichains\n\n",
                                 found.request.recurrence == scheduler::Recurrence::Code
                                     ? "the repository's recurrence"
                                     : "the paper's recurrence",
                                 found.antichains);
  Table table({"stage", "<antichains", "replicas", "layers", "compute s", "<from .. to"});
  std::size_t next = 0;
  for (std::size_t k = 0; k < found.plan.stages.size(); ++k) {
    const scheduler::PipedreamStage& stage = found.plan.stages[k];
    std::vector<std::string> names;
    names.reserve(found.cut.partition[k]);
    for (std::uint32_t l = 0; l < found.cut.partition[k]; ++l) {
      names.push_back(found.cut.profile.layers[next++].name);
    }
    table.add_row({std::to_string(k), fmt::format("{}-{}", stage.first, stage.end),
                   std::to_string(stage.replicas), std::to_string(names.size()),
                   fmt::format("{:.6g}", stage.compute_s), layers_text(names)});
  }
  text += table.to_string();
  text += fmt::format(
      "\nby its formula: {:.9g} s a mini-batch, {:.6g} times one device ({:.6g} s); data "
      "parallelism {:.6g} times\n",
      found.plan.pipeline_s, found.plan.one_device_s / found.plan.pipeline_s,
      found.plan.one_device_s, found.plan.one_device_s / found.plan.data_parallel_s);
  return text;
}

}  // namespace

std::string plan_text(const PlanReport& report) {
  const Workload& workload = report.workload;
  std::string text = fmt::format(
      "{} ({})\n{} layers on {} ({} devices), mini-batch of {} samples, {}\n\n",
      workload.profile.name, workload.profile.provenance, workload.profile.layers.size(),
      workload.cluster.name, workload.cluster.devices.size(), *workload.batch_size,
      scheduler::optimizer_name(workload.optimizer));
  if (report.pipedream != nullptr) {
    text += pipedream_text(*report.pipedream) + "\n";
  }
  if (report.outcome != nullptr) {
    const Candidate& plan = report.outcome->candidates.front();
    text += fmt::format("plan: {} on {} stages with T = {}, {} samples/s\nlayers per stage: {}\n\n",
                        plan.run.policy->name, plan.workload.stages, t_text(plan),
                        rate_text(plan.samples_per_s), fmt::join(plan.workload.partition, ","));
    text += stage_table(plan) + "\n" + why_text(*report.outcome);
    text += fmt::format("\ntried {} set-ups; the best T of each policy and number of stages:\n\n",
                        report.outcome->candidates.size()) +
            candidates_table(runners_up(*report.outcome));
  }
  for (const std::string& note : report.notes) {
    text += "note: " + note + "\n";
  }
  return text;
}

const PeakMemory& stage_memory(const Candidate& plan, std::size_t stage) {
  const PeakMemory* fullest = nullptr;
  for (const ir::DeviceId device : plan.workload.placement[stage]) {
    const PeakMemory& peak = plan.memory[ir::index_of(device)];
    if (fullest == nullptr || peak.bytes > fullest->bytes) {
      fullest = &peak;
    }
  }
  return *fullest;
}

std::string by_kind_text(const simulator::MemoryBytes& bytes) {
  std::vector<std::size_t> kinds(bytes.size());
  std::iota(kinds.begin(), kinds.end(), std::size_t{0});
  std::ranges::stable_sort(kinds, std::greater<>(), [&bytes](std::size_t k) { return bytes[k]; });
  std::vector<std::string> parts;
  for (const std::size_t kind : kinds) {
    if (bytes[kind] > 0) {
      parts.push_back(
          fmt::format("{} {}", bytes_text(bytes[kind]),
                      simulator::memory_kind_name(static_cast<simulator::MemoryKind>(kind))));
    }
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

ir::Error does_not_fit(const PlanOutcome& outcome) {
  const Candidate& nearest = outcome.candidates.front();
  ir::Error error{ir::ErrorKind::Illegal, {}};
  for (std::size_t d = 0; d < nearest.memory.size(); ++d) {
    const PeakMemory& peak = nearest.memory[d];
    if (peak.shortfall() > 0) {
      error.diagnostics.push_back(
          {"memory", fmt::format("device {}", d),
           fmt::format("holds {} at its peak ({}), it has {}: {} too much; nearest of {} set-ups "
                       "({} on {} stages with T = {}, layers per stage {}); use more stages, more "
                       "micro-batches, a smaller --batch-size, or devices with more memory",
                       bytes_text(peak.bytes), by_kind_text(peak.by_kind), bytes_text(*peak.limit),
                       bytes_text(peak.shortfall()), outcome.candidates.size(),
                       nearest.run.policy->name, nearest.workload.stages, nearest.micro_batches,
                       fmt::join(nearest.workload.partition, ","))});
    }
  }
  return error;
}

}  // namespace xpipe::app
