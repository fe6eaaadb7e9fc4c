#include "app/run_summary.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "simulator/extrapolate.h"

namespace xpipe::app {

StalenessSummary summarize(const std::vector<simulator::StageStaleness>& stages) {
  StalenessSummary largest;
  for (const simulator::StageStaleness& stage : stages) {
    largest.forward = std::max(largest.forward, stage.forward_max);
    largest.backward = std::max(largest.backward, stage.backward_max);
    largest.versions_held = std::max(largest.versions_held, stage.peak.versions_held);
  }
  return largest;
}

simulator::Metrics measure_run(const simulator::LongRun& run) {
  const simulator::Metrics base = simulator::measure(run.base.schedule, run.base.timeline);
  return run.longer.has_value()
             ? simulator::extrapolated(
                   base, simulator::measure(run.longer->schedule, run.longer->timeline),
                   run.repeats)
             : base;
}

RunSummary summarize(const Workload& workload,
                     const simulator::LongRun& run,
                     std::uint32_t asked_micro_batches,
                     const simulator::Metrics& metrics,
                     ir::Bytes peak_memory,
                     const StalenessSummary& staleness) {
  const ir::Schedule& schedule = run.base.schedule;
  const ir::Schedule& longer = run.longer.has_value() ? run.longer->schedule : schedule;
  const simulator::SteadyState& steady = run.steady;
  RunSummary summary;
  summary.policy = schedule.policy;
  summary.options = schedule.options;
  summary.stages = static_cast<std::uint32_t>(schedule.stages.size());
  summary.devices = schedule.devices;
  summary.partition = workload.partition;
  summary.micro_batches = schedule.micro_batches;
  summary.asked_micro_batches = asked_micro_batches;
  summary.mini_batches =
      static_cast<std::uint32_t>(run.extrapolated(schedule.mini_batches, longer.mini_batches));
  summary.replayed_mini_batches = schedule.mini_batches;
  summary.samples_per_mini_batch = workload.samples_per_mini_batch(asked_micro_batches);
  summary.tasks =
      static_cast<std::uint64_t>(run.extrapolated(static_cast<std::int64_t>(schedule.tasks.size()),
                                                  static_cast<std::int64_t>(longer.tasks.size())));
  summary.makespan = metrics.makespan;
  summary.steady = steady;
  const double samples = summary.samples_per_mini_batch;
  summary.samples_per_s =
      steady.found()
          ? simulator::samples_per_second(samples * steady.period, steady.period_ns)
          : simulator::samples_per_second(samples * summary.mini_batches, metrics.makespan);
  summary.bubble_of_total = metrics.bubble_of_total;
  summary.bubble_of_ideal = metrics.bubble_of_ideal;
  summary.bubble_of_longest = metrics.bubble_of_longest;
  summary.exposed_of_total = metrics.exposed_of_total;
  for (const simulator::DeviceUse& device : metrics.devices) {
    summary.busiest_utilization = std::max(summary.busiest_utilization, device.utilization);
  }
  summary.peak_memory = peak_memory;
  summary.staleness = staleness;
  return summary;
}

nlohmann::ordered_json to_json(const RunSummary& summary) {
  using Json = nlohmann::ordered_json;
  Json options = Json::object();
  for (const auto& [name, value] : summary.options) {
    options[name] = value;
  }
  Json json = {{"policy", summary.policy},
               {"options", std::move(options)},
               {"stages", summary.stages},
               {"device_count", summary.devices},
               {"partition", summary.partition},
               {"micro_batches", summary.micro_batches},
               {"asked_micro_batches", summary.asked_micro_batches},
               {"mini_batches", summary.mini_batches},
               {"replayed_mini_batches", summary.replayed_mini_batches},
               {"batch_size", summary.samples_per_mini_batch},
               {"tasks", summary.tasks},
               {"makespan_ns", summary.makespan}};
  if (const auto steady = summary.steady.ns_per_mini_batch()) {
    json["steady_ns_per_mini_batch"] = *steady;
    json["steady_period"] = summary.steady.period;
    json["steady_period_ns"] = summary.steady.period_ns;
  }
  if (summary.samples_per_s) {
    json["samples_per_s"] = *summary.samples_per_s;
  }
  json["bubble_of_total"] = summary.bubble_of_total;
  json["bubble_of_ideal"] = summary.bubble_of_ideal;
  json["bubble_of_longest"] = summary.bubble_of_longest;
  json["exposed_of_total"] = summary.exposed_of_total;
  json["busiest_utilization"] = summary.busiest_utilization;
  json["peak_memory_bytes"] = summary.peak_memory;
  json["forward_staleness_max"] = summary.staleness.forward;
  json["backward_staleness_max"] = summary.staleness.backward;
  json["versions_held_max"] = summary.staleness.versions_held;
  return json;
}

std::string list_text(const std::vector<std::string>& values) {
  constexpr std::size_t kAllShown = 6;
  constexpr std::size_t kEndShown = 2;
  if (values.size() > 1 &&
      std::ranges::adjacent_find(values, std::not_equal_to<>()) == values.end()) {
    return values.front();
  }
  std::string text;
  for (std::size_t k = 0; k < values.size(); ++k) {
    if (values.size() > kAllShown && k == kEndShown) {
      text += ",..";
      k = values.size() - kEndShown;
    }
    text += (text.empty() ? "" : ",") + values[k];
  }
  return text;
}

std::string percent_text(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string ms_text(const std::optional<ir::Nanos>& time) {
  return time ? fmt::format("{:.3f}", static_cast<double>(*time) / 1e6) : "-";
}

std::string bytes_text(ir::Bytes bytes) {
  const auto count = static_cast<double>(bytes);
  if (bytes < 10'000'000) {
    return fmt::format("{:.1f} kB", count / 1e3);
  }
  return bytes < 10'000'000'000 ? fmt::format("{:.1f} MB", count / 1e6)
                                : fmt::format("{:.1f} GB", count / 1e9);
}

std::string rate_text(const std::optional<double>& rate) {
  if (!rate) {
    return "-";
  }
  return *rate >= 1000 ? fmt::format("{:.0f}", *rate) : fmt::format("{:.4g}", *rate);
}

}  // namespace xpipe::app
