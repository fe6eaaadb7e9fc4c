#include "app/simulation.h"
#include "app/what_if.h"
#include <nlohmann/json.hpp>

#include "ir/text.h"

namespace xpipe::app {

namespace {

using Json = nlohmann::ordered_json;

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
                     {"busy_ns", link.busy},
                     {"utilization", link.utilization}});
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

/// `value(ns)` for each kind of task on the path, and for the latency of messages.
template <typename Value>
Json by_kind_json(const Simulation& run, Value&& value) {
  Json json = Json::object();
  for (std::size_t kind = 0; kind < ir::kTaskKinds; ++kind) {
    if (run.critical_path.by_kind[kind] > 0) {
      json[std::string(ir::kind_name(static_cast<ir::TaskKind>(kind)))] =
          value(run.critical_path.by_kind[kind]);
    }
  }
  if (run.critical_path.latency > 0) {
    json["latency"] = value(run.critical_path.latency);
  }
  return json;
}

Json critical_times_json(const Simulation& run) {
  return by_kind_json(run, [](ir::Nanos time) { return time; });
}

Json critical_shares_json(const Simulation& run) {
  return by_kind_json(run, [&run](ir::Nanos time) {
    return static_cast<double>(time) / static_cast<double>(run.metrics.makespan);
  });
}

/// Column by column: times, then each kind's bytes from that time on.
Json memory_json(const simulator::DeviceMemory& memory) {
  Json json = {{"time_ns", Json::array()}};
  for (std::size_t kind = 0; kind < simulator::kMemoryKinds; ++kind) {
    json[std::string(simulator::memory_kind_name(static_cast<simulator::MemoryKind>(kind)))] =
        Json::array();
  }
  for (const simulator::MemoryPoint& point : memory.curve) {
    json["time_ns"].push_back(point.time);
    for (std::size_t kind = 0; kind < simulator::kMemoryKinds; ++kind) {
      json[std::string(simulator::memory_kind_name(static_cast<simulator::MemoryKind>(kind)))]
          .push_back(point.bytes[kind]);
    }
  }
  return json;
}

Json what_if_json(const WhatIf& what_if) {
  Json rows = Json::array();
  for (const WhatIfRow& row : what_if.rows) {
    Json json = {{"target", target_name(row.target)},
                 {"name", row.name},
                 {"makespan_ns", row.makespan},
                 {"makespan_speed_up", row.makespan_speed_up}};
    if (row.steady_speed_up.has_value()) {
      json["steady_ns_per_mini_batch"] = *row.steady.ns_per_mini_batch();
      json["steady_speed_up"] = *row.steady_speed_up;
    }
    json["critical_path_share"] = row.path_share;
    rows.push_back(std::move(json));
  }
  return {{"percent", what_if.percent}, {"rows", std::move(rows)}};
}

Json run_json(const Simulation& run, bool memory_over_time) {
  Json json = to_json(run.summary);
  json["devices"] = devices_json(run);
  if (memory_over_time) {
    for (std::size_t d = 0; d < run.memory.size(); ++d) {
      json["devices"][d]["memory_over_time"] = memory_json(run.memory[d]);
    }
  }
  json["transfers"] = run.metrics.transfers;
  json["transfer_bytes"] = run.metrics.bytes;
  json["links"] = links_json(run);
  json["staleness"] = staleness_json(run);
  json["critical_path"] = critical_path_json(run);
  json["critical_path_ns_by_kind"] = critical_times_json(run);
  json["critical_path_share_by_kind"] = critical_shares_json(run);
  if (run.what_if.has_value()) {
    json["what_if"] = what_if_json(*run.what_if);
  }
  json["notes"] = run.notes;
  return json;
}

}  // namespace

std::string to_json(const Workload& workload,
                    const std::vector<Simulation>& runs,
                    bool memory_over_time) {
  Json document = {{"format", "xpipe.simulation"},
                   {"version", 1},
                   {"profile",
                    {{"name", workload.profile.name},
                     {"provenance", workload.profile.provenance},
                     {"samples", workload.profile.samples}}},
                   {"runs", Json::array()}};
  for (const Simulation& run : runs) {
    document["runs"].push_back(run_json(run, memory_over_time));
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace xpipe::app
