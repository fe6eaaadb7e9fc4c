#include <algorithm>
#include <utility>

#include "app/simulation.h"
#include "app/table.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ir/text.h"

namespace xpipe::app {

namespace {

using Json = nlohmann::ordered_json;

/// "3,2,1,0", shortened in the middle where there are many stages.
template <typename Of>
std::string by_stage(std::size_t stages, Of&& of) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t k = 0; k < stages; ++k) {
    if (stages > kShown && k == kShown / 2) {
      text += ",..";
      k = stages - kShown / 2;
    }
    text += (text.empty() ? "" : ",") + of(k);
  }
  return text;
}

std::string range_text(std::int64_t low, std::int64_t high) {
  return low == high ? std::to_string(low) : fmt::format("{}-{}", low, high);
}

ir::Bytes peak_memory(const Simulation& run) {
  ir::Bytes peak = 0;
  for (const simulator::DeviceMemory& device : run.memory) {
    peak = std::max(peak, device.peak);
  }
  return peak;
}

std::string bytes_text(ir::Bytes bytes) {
  if (bytes < 10'000'000) {
    return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  }
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

/// A rate with four significant digits and no exponent.
std::string rate_text(const std::optional<double>& rate) {
  if (!rate) {
    return "-";
  }
  return *rate >= 1000 ? fmt::format("{:.0f}", *rate) : fmt::format("{:.4g}", *rate);
}

Json devices_json(const Simulation& run) {
  Json devices = Json::array();
  for (std::size_t d = 0; d < run.metrics.devices.size(); ++d) {
    const simulator::DeviceUse& use = run.metrics.devices[d];
    Json by_kind = Json::object();
    for (std::size_t kind = 0; kind < simulator::kMemoryKinds; ++kind) {
      by_kind[std::string(simulator::memory_kind_name(static_cast<simulator::MemoryKind>(kind)))] =
          run.memory[d].peak_by_kind[kind];
    }
    devices.push_back({{"device", d},
                       {"busy_ns", use.busy},
                       {"utilization", use.utilization},
                       {"exposed_communication_ns", use.exposed_communication},
                       {"peak_memory_bytes", run.memory[d].peak},
                       {"peak_memory_ns", run.memory[d].peak_time},
                       {"peak_memory_by_kind", by_kind}});
  }
  return devices;
}

Json staleness_json(const Simulation& run) {
  Json stages = Json::array();
  for (std::size_t k = 0; k < run.staleness.size(); ++k) {
    const simulator::StageStaleness& stage = run.staleness[k];
    stages.push_back({{"stage", k},
                      {"forward_min", stage.forward_min},
                      {"forward_max", stage.forward_max},
                      {"backward_min", stage.backward_min},
                      {"backward_max", stage.backward_max},
                      {"is_steady", stage.is_steady},
                      {"versions_held", stage.peak.versions_held},
                      {"stash_slots", stage.peak.stash_slots},
                      {"prediction_slots", stage.peak.prediction_slots},
                      {"predict_forward", stage.predict_forward},
                      {"predict_backward", stage.predict_backward},
                      {"in_flight", run.in_flight[k]}});
  }
  return stages;
}

Json links_json(const Simulation& run) {
  Json links = Json::array();
  for (const simulator::LinkUse& link : run.metrics.links) {
    links.push_back({{"from", ir::index_of(link.from)},
                     {"to", ir::index_of(link.to)},
                     {"transfers", link.transfers},
                     {"bytes", link.bytes},
                     {"busy_ns", link.busy}});
  }
  return links;
}

Json critical_path_json(const Simulation& run) {
  Json path = Json::array();
  for (const ir::Span& span : run.critical_path.tasks) {
    path.push_back({{"task", ir::to_text(run.schedule.task(span.task))},
                    {"start_ns", span.start},
                    {"end_ns", span.end}});
  }
  return path;
}

Json critical_share_json(const Simulation& run) {
  Json share = Json::object();
  for (std::size_t kind = 0; kind < ir::kTaskKinds; ++kind) {
    if (run.critical_path.by_kind[kind] > 0) {
      share[std::string(ir::kind_name(static_cast<ir::TaskKind>(kind)))] =
          run.critical_path.by_kind[kind];
    }
  }
  if (run.critical_path.latency > 0) {
    share["latency"] = run.critical_path.latency;
  }
  return share;
}

Json run_json(const Workload& workload, const Simulation& run) {
  Json options = Json::object();
  for (const auto& [name, value] : run.schedule.options) {
    options[name] = value;
  }
  Json json = {{"policy", run.schedule.policy},
               {"options", options},
               {"stages", run.schedule.stages.size()},
               {"partition", workload.partition},
               {"micro_batches", run.schedule.micro_batches},
               {"asked_micro_batches", run.asked_micro_batches},
               {"mini_batches", run.schedule.mini_batches},
               {"batch_size", run.samples_per_mini_batch},
               {"tasks", run.schedule.tasks.size()},
               {"makespan_ns", run.metrics.makespan}};
  if (const auto steady = run.steady.ns_per_mini_batch()) {
    json["steady_ns_per_mini_batch"] = *steady;
    json["steady_period"] = run.steady.period;
    json["steady_period_ns"] = run.steady.period_ns;
  }
  if (run.samples_per_s) {
    json["samples_per_s"] = *run.samples_per_s;
  }
  json["bubble_of_total"] = run.metrics.bubble_of_total;
  json["bubble_of_ideal"] = run.metrics.bubble_of_ideal;
  json["bubble_of_longest"] = run.metrics.bubble_of_longest;
  json["devices"] = devices_json(run);
  json["transfers"] = run.metrics.transfers;
  json["transfer_bytes"] = run.metrics.bytes;
  json["links"] = links_json(run);
  json["staleness"] = staleness_json(run);
  json["critical_path"] = critical_path_json(run);
  json["critical_path_ns_by_kind"] = critical_share_json(run);
  json["notes"] = run.notes;
  return json;
}

}  // namespace

std::string to_table(const Workload& workload, const std::vector<Simulation>& runs) {
  std::string text =
      fmt::format("{} ({})\n{} stages, layers per stage {}\n\n", workload.profile.name,
                  workload.profile.provenance, workload.stages, fmt::join(workload.partition, ","));
  Table table({"<policy", "T", "ms/mini-batch", "samples/s", "bubble", "busy", "peak memory",
               "<staleness F", "<staleness B", "<predict F", "<predict B", "<weights held"});
  for (const Simulation& run : runs) {
    const auto steady = run.steady.ns_per_mini_batch();
    double busiest = 0.0;
    for (const simulator::DeviceUse& device : run.metrics.devices) {
      busiest = std::max(busiest, device.utilization);
    }
    const auto& stages = run.staleness;
    const auto column = [&stages](auto&& of) {
      return by_stage(stages.size(), [&](std::size_t k) { return of(stages[k]); });
    };
    using Stage = simulator::StageStaleness;
    table.add_row(
        {run.schedule.policy, std::to_string(run.schedule.micro_batches),
         steady ? fmt::format("{:.3f}", static_cast<double>(*steady) / 1e6) : "-",
         rate_text(run.samples_per_s), fmt::format("{:.1f} %", 100 * run.metrics.bubble_of_total),
         fmt::format("{:.1f} %", 100 * busiest), bytes_text(peak_memory(run)),
         column([](const Stage& s) { return range_text(s.forward_min, s.forward_max); }),
         column([](const Stage& s) { return range_text(s.backward_min, s.backward_max); }),
         column([](const Stage& s) { return std::to_string(s.predict_forward); }),
         column([](const Stage& s) { return std::to_string(s.predict_backward); }),
         column([](const Stage& s) { return std::to_string(s.peak.versions_held); })});
  }
  text += table.to_string();
  text +=
      "\nms/mini-batch and samples/s: steady state. bubble, busy (of the busiest device), peak "
      "memory\n(of the fullest device): the whole run. The last five: by stage.\n";
  std::vector<std::string> said;
  for (const Simulation& run : runs) {
    for (const std::string& note : run.notes) {
      if (std::find(said.begin(), said.end(), note) == said.end()) {
        said.push_back(note);
        text += "note: " + note + "\n";
      }
    }
  }
  return text;
}

std::string to_json(const Workload& workload, const std::vector<Simulation>& runs) {
  Json document = {{"format", "xpipe.simulation"},
                   {"version", 1},
                   {"profile",
                    {{"name", workload.profile.name},
                     {"provenance", workload.profile.provenance},
                     {"samples", workload.profile.samples}}},
                   {"runs", Json::array()}};
  for (const Simulation& run : runs) {
    document["runs"].push_back(run_json(workload, run));
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace xpipe::app
