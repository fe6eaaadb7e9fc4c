#include <cmath>
#include <utility>

#include "app/plan_limits.h"
#include "app/plan_output.h"
#include <nlohmann/json.hpp>

namespace xpipe::app {

namespace {

using Json = nlohmann::ordered_json;

Json memory_json(const simulator::MemoryBytes& bytes) {
  Json json = Json::object();
  for (std::size_t kind = 0; kind < bytes.size(); ++kind) {
    json[std::string(simulator::memory_kind_name(static_cast<simulator::MemoryKind>(kind)))] =
        bytes[kind];
  }
  return json;
}

Json stages_json(const Candidate& plan) {
  Json stages = Json::array();
  const auto names = plan.workload.layers_by_stage();
  const std::vector<ir::Nanos> times = stage_times(plan);
  const std::vector<StageTransfer> transfers = transfers_of(plan);
  for (std::size_t k = 0; k < times.size(); ++k) {
    const scheduler::StageCosts& costs = plan.model.costs.stages[k];
    const PeakMemory& peak = stage_memory(plan, k);
    Json devices = Json::array();
    for (const ir::DeviceId device : plan.workload.placement[k]) {
      devices.push_back(ir::index_of(device));
    }
    stages.push_back({{"stage", k},
                      {"layers", names[k]},
                      {"devices", std::move(devices)},
                      {"time_ns", times[k]},
                      {"sent_bytes", transfers[k].bytes},
                      {"transfer_ns", transfers[k].time},
                      {"parameter_bytes", costs.parameter_bytes},
                      {"peak_memory_bytes", peak.bytes},
                      {"peak_memory_by_kind", memory_json(peak.by_kind)}});
    if (peak.limit) {
      stages.back()["memory_bytes"] = *peak.limit;
    }
  }
  return stages;
}

Json options_json(const RunRequest& run) {
  Json options = Json::object();
  for (const auto& [name, value] : run.options) {
    options[name] = value;
  }
  return options;
}

void add_rate(Json& json, const Candidate& candidate) {
  if (candidate.samples_per_s) {
    json["samples_per_s"] = *candidate.samples_per_s;
  }
  json["ns_per_mini_batch"] = candidate.ns_per_mini_batch();
  json["is_steady"] = candidate.steady.found();
}

Json candidate_json(const Candidate& candidate) {
  Json json = {{"policy", candidate.run.policy->name},
               {"stages", candidate.workload.stages},
               {"micro_batches", candidate.micro_batches},
               {"partition", candidate.workload.partition}};
  add_rate(json, candidate);
  json["bubble_of_total"] = candidate.metrics.bubble_of_total;
  json["peak_memory_bytes"] = candidate.peak_memory();
  json["forward_staleness_max"] = candidate.staleness;
  json["fits"] = candidate.fits();
  json["shortfall_bytes"] = candidate.shortfall;
  json["exact"] = candidate.cut.exact;
  return json;
}

Json pipedream_json(const PipedreamCut& found) {
  Json stages = Json::array();
  for (const scheduler::PipedreamStage& stage : found.plan.stages) {
    stages.push_back({{"first_antichain", stage.first},
                      {"end_antichain", stage.end},
                      {"replicas", stage.replicas},
                      {"compute_s", stage.compute_s}});
  }
  return {
      {"recurrence", found.request.recurrence == scheduler::Recurrence::Code ? "code" : "paper"},
      {"antichains", found.antichains},
      {"stages", std::move(stages)},
      {"pipeline_s", found.plan.pipeline_s},
      {"one_device_s", found.plan.one_device_s},
      {"speed_up", found.plan.one_device_s / found.plan.pipeline_s},
      {"data_parallel_speed_up", found.plan.one_device_s / found.plan.data_parallel_s}};
}

/// A plan that only PipeDream's formula knows.
void add_formula_plan(Json& document, const Workload& workload, const PipedreamCut& found) {
  Json stages = Json::array();
  std::size_t layer = 0;
  std::size_t device = 0;
  for (std::size_t k = 0; k < found.plan.stages.size(); ++k) {
    Json names = Json::array();
    ir::Bytes parameters = 0;
    for (std::uint32_t l = 0; l < found.cut.partition[k]; ++l, ++layer) {
      names.push_back(found.cut.profile.layers[layer].name);
      parameters += found.cut.profile.layers[layer].parameter_bytes;
    }
    Json devices = Json::array();
    for (std::uint32_t r = 0; r < found.cut.replicas[k]; ++r) {
      devices.push_back(device++);
    }
    stages.push_back({{"stage", k},
                      {"layers", std::move(names)},
                      {"devices", std::move(devices)},
                      {"time_ns", std::llround(found.plan.stages[k].compute_s * 1e9)},
                      {"parameter_bytes", parameters}});
  }
  document["stages"] = std::move(stages);
  document["bottleneck_ns"] = std::llround(found.plan.pipeline_s * 1e9);
  document["policy"] = "pipedream";
  document["micro_batches"] = 1;
  document["partition"] = found.cut.partition;
  document["samples_per_s"] = workload.profile.samples / found.plan.pipeline_s;
  document["simulated"] = false;
  document["exact"] = found.cut.exact;
  document["exact_reason"] = found.cut.reason;
}

void add_plan(Json& document, const PlanOutcome& outcome) {
  const Candidate& plan = outcome.candidates.front();
  document["stages"] = stages_json(plan);
  document["bottleneck_ns"] = bottleneck_of(plan);
  document["policy"] = plan.run.policy->name;
  document["options"] = options_json(plan.run);
  document["micro_batches"] = plan.micro_batches;
  document["partition"] = plan.workload.partition;
  add_rate(document, plan);
  document["simulated"] = true;
  document["exact"] = plan.cut.exact;
  document["exact_reason"] = plan.cut.reason;
  const PlanLimit limit = limit_of(plan);
  document["limit"] = {
      {"kind", limit_name(limit.kind)}, {"busy_share", limit.busy_share}, {"text", limit.text}};
  if (limit.ideal_samples_per_s) {
    document["ideal_samples_per_s"] = *limit.ideal_samples_per_s;
  }
  Json candidates = Json::array();
  for (const Candidate& candidate : outcome.candidates) {
    candidates.push_back(candidate_json(candidate));
  }
  document["candidates"] = std::move(candidates);
}

}  // namespace

std::string plan_json(const PlanReport& report) {
  const Workload& workload = report.workload;
  Json document = {{"format", "xpipe.plan"},
                   {"version", 1},
                   {"profile",
                    {{"name", workload.profile.name},
                     {"provenance", workload.profile.provenance},
                     {"samples", workload.profile.samples}}},
                   {"cluster", workload.cluster.name},
                   {"batch_size", *workload.batch_size}};
  if (report.outcome != nullptr) {
    add_plan(document, *report.outcome);
  } else if (report.pipedream != nullptr) {
    add_formula_plan(document, workload, *report.pipedream);
  }
  if (report.pipedream != nullptr) {
    document["pipedream"] = pipedream_json(*report.pipedream);
  }
  document["notes"] = report.notes;
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace xpipe::app
