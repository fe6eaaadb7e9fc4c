#include "app/simulation.h"
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
