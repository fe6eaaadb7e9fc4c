#include "app/train_output.h"

#include <optional>
#include <utility>

#include "app/simulation.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scheduler/stage_costs.h"
#include "simulator/memory.h"
#include "traces/chrome_trace.h"
#include "traces/weight_counters.h"

namespace xpipe::app {

namespace {

namespace nn = executor::nn;
using Json = nlohmann::ordered_json;
using nn::EpochRecord;
using nn::MiniBatchRecord;

Json errors_json(const std::vector<std::optional<double>>& errors) {
  Json list = Json::array();
  for (const std::optional<double>& error : errors) {
    list.push_back(error ? Json(*error) : Json(nullptr));
  }
  return list;
}

/// `previous` is when the mini-batch before it ended, in the same epoch.
Json mini_batch_json(const MiniBatchRecord& record, ir::Nanos previous) {
  Json json = {{"kind", "mini_batch"},
               {"epoch", record.epoch},
               {"mini_batch", record.mini_batch},
               {"loss", record.loss},
               {"accuracy", record.accuracy}};
  if (record.ended > previous) {
    json["samples_per_s"] = 1e9 * record.samples / static_cast<double>(record.ended - previous);
  }
  if (record.gradient_norm) {
    json["gradient_norm"] = *record.gradient_norm;
  }
  if (!record.prediction_error.empty()) {
    json["prediction_error"] = errors_json(record.prediction_error);
    json["unpredicted_error"] = errors_json(record.unpredicted_error);
  }
  return json;
}

Json options_json(const ir::Schedule& schedule) {
  Json options = Json::object();
  for (const auto& [name, value] : schedule.options) {
    options[name] = value;
  }
  return options;
}

Json epoch_json(const EpochRecord& epoch) {
  return {{"kind", "epoch"},
          {"epoch", epoch.epoch},
          {"loss", epoch.train_loss},
          {"accuracy", epoch.test_accuracy},
          {"train_accuracy", epoch.train_accuracy},
          {"test_loss", epoch.test_loss},
          {"samples_per_s", epoch.samples_per_s}};
}

/// What the run is, for records that may be parted from it.
void add_run(Json& json, const nn::TrainConfig& config, const ir::Schedule& schedule) {
  json["policy"] = schedule.policy;
  json["options"] = options_json(schedule);
  json["stages"] = schedule.stages.size();
  json["micro_batches"] = schedule.micro_batches;
  json["batch_size"] = config.batch_size;
  json["loss_function"] = config.recipe.loss == nn::LossKind::MeanSquare ? "mse" : "cross-entropy";
  json["dtype"] = nn::compute_type_name(config.compute.dtype);
  json["seed"] = config.seed;
  json["schedule_version"] = ir::kScheduleFormatVersion;
}

std::string device_name(nn::TrainDevice device) {
  switch (device) {
    case nn::TrainDevice::Inline:
      return "inline";
    case nn::TrainDevice::Cpu:
      return "cpu";
    case nn::TrainDevice::Cuda:
      return "cuda";
  }
  return "";
}

std::int64_t parameters_of(const nn::TrainFacts& facts) {
  std::int64_t sum = 0;
  for (const std::int64_t count : facts.stage_parameters) {
    sum += count;
  }
  return sum;
}

scheduler::OptimizerKind optimizer_of(const nn::OptimizerConfig& optimizer) {
  switch (optimizer.kind) {
    case nn::OptimizerKind::Sgd:
      return optimizer.momentum == 0.0 ? scheduler::OptimizerKind::Sgd
                                       : scheduler::OptimizerKind::SgdMomentum;
    case nn::OptimizerKind::Adam:
      return scheduler::OptimizerKind::Adam;
    case nn::OptimizerKind::AdamW:
      return scheduler::OptimizerKind::AdamW;
    case nn::OptimizerKind::RmsProp:
      return scheduler::OptimizerKind::RmsProp;
  }
  return scheduler::OptimizerKind::Adam;
}

/// A cost model with sizes and no times: what simulator/memory.h needs.
scheduler::CostModel memory_model(const TrainRequest& request,
                                  const nn::TrainFacts& facts,
                                  const ir::Schedule& schedule) {
  const scheduler::OptimizerKind optimizer = optimizer_of(request.config.optimizer);
  const std::uint32_t kept =
      scheduler::copies_kept_for_predict(optimizer, request.policy->extrapolation);
  scheduler::CostModel model;
  std::size_t layer = 0;
  for (std::size_t k = 0; k < schedule.stages.size(); ++k) {
    scheduler::StageCosts costs;
    costs.parameter_bytes = facts.stage_parameters[k] * static_cast<ir::Bytes>(sizeof(float));
    costs.optimizer_bytes = costs.parameter_bytes * scheduler::optimizer_copies(optimizer);
    costs.prediction_bytes = costs.parameter_bytes * kept;
    for (std::uint32_t i = 0; i < facts.partition[k]; ++i, ++layer) {
      if (request.profile) {
        costs.saved_bytes += request.profile->layers[layer].saved_bytes;
      }
    }
    if (request.profile) {
      costs.saved_bytes = costs.saved_bytes * request.config.batch_size /
                          (request.profile->samples * ir::Bytes{schedule.micro_batches});
    }
    model.stages.push_back(costs);
  }
  return model;
}

}  // namespace

std::string head_lines(const nn::TrainConfig& config,
                       const nn::TrainFacts& facts,
                       const ir::Schedule& schedule) {
  std::string text = fmt::format(
      "{}, {} stages (layers per stage {}), T = {}, {} mini-batches an epoch of {} samples\n",
      schedule.policy, facts.stages, fmt::join(facts.partition, ","), schedule.micro_batches,
      facts.mini_batches, config.batch_size);
  text += fmt::format("{} on {}: {} training and {} test samples, {} parameters, seed {}\n",
                      config.model, facts.data_kind, facts.train_samples, facts.test_samples,
                      parameters_of(facts), config.seed);
  if (facts.dropped_samples > 0) {
    text += fmt::format("{} of an epoch's samples fill no mini-batch and are left out\n",
                        facts.dropped_samples);
  }
  if (facts.last_batch_samples < schedule.micro_batches) {
    text += fmt::format(
        "the last mini-batch of an epoch has {0} sample{1}: it runs apart, with {0} "
        "micro-batch{2}\n",
        facts.last_batch_samples, facts.last_batch_samples == 1 ? "" : "s",
        facts.last_batch_samples == 1 ? "" : "es");
  }
  if (!facts.resumed_from.empty()) {
    text += fmt::format("going on from {}: epoch {}, mini-batch {}\n", facts.resumed_from,
                        facts.resumed_at.epoch, facts.resumed_at.mini_batch);
  }
  return text + "\nepoch   loss    train    test   samples/s\n";
}

std::string metrics_lines(const nn::TrainConfig& config,
                          const ir::Schedule& schedule,
                          const nn::TrainResult& result) {
  std::string lines;
  std::size_t next = 0;
  for (const EpochRecord& epoch : result.epochs) {
    ir::Nanos previous = next == 0 ? result.resumed_time : 0;
    for (; next < result.mini_batches.size() && result.mini_batches[next].epoch == epoch.epoch;
         ++next) {
      lines += mini_batch_json(result.mini_batches[next], previous).dump() + "\n";
      previous = result.mini_batches[next].ended;
    }
    Json json = epoch_json(epoch);
    add_run(json, config, schedule);
    if (config.prediction_error_every > 0) {
      json["probe_bytes"] = result.probe_bytes;
    }
    lines += json.dump() + "\n";
  }
  return lines;
}

std::string training_json(const nn::TrainConfig& config,
                          const nn::TrainFacts& facts,
                          const ir::Schedule& schedule,
                          const nn::TrainResult& result) {
  Json document = {{"format", "xpipe.training"}, {"version", 1}, {"model", config.model}};
  add_run(document, config, schedule);
  document["partition"] = facts.partition;
  document["mini_batches"] = facts.mini_batches;
  document["dropped_samples"] = facts.dropped_samples;
  document["parameters"] = parameters_of(facts);
  document["epochs"] = Json::array();
  for (const EpochRecord& epoch : result.epochs) {
    document["epochs"].push_back(epoch_json(epoch));
    document["epochs"].back().erase("kind");
  }
  document["memory"] = Json::array();
  for (std::size_t k = 0; k < result.memory.size(); ++k) {
    const nn::StageMemory& memory = result.memory[k];
    document["memory"].push_back({{"stage", k},
                                  {"weight_bytes", memory.weights},
                                  {"slot_bytes", memory.slots},
                                  {"optimizer_bytes", memory.optimizer},
                                  {"weight_storages", memory.weight_storages},
                                  {"parameter_tensors", memory.parameters}});
  }
  document["weights_hash"] = fmt::format("{:016x}", result.weights_hash);
  return document.dump(2) + "\n";
}

ir::Result<std::string> trace_of_run(const TrainRequest& request,
                                     const nn::TrainFacts& facts,
                                     const nn::TrainResult& result) {
  const nn::TrainConfig& config = request.config;
  const ir::Schedule& schedule = result.schedule;
  traces::TraceInfo info;
  info.title = fmt::format("run: {}, {} stages, T = {}, epoch {}", schedule.policy, facts.stages,
                           schedule.micro_batches, result.timeline_epoch);
  if (schedule.mini_batches < facts.mini_batches) {
    info.title +=
        fmt::format(", its longest segment (mini-batches {} to {})", result.timeline_first,
                    result.timeline_first + schedule.mini_batches - 1);
  }
  info.facts = {{"model", config.model},
                {"device", device_name(config.device)},
                {"dtype", std::string(nn::compute_type_name(config.compute.dtype))},
                {"batch_size", std::to_string(config.batch_size)},
                {"epoch", std::to_string(result.timeline_epoch)},
                {"optimizer", std::string(nn::optimizer_name(config.optimizer.kind))},
                {"learning_rate", fmt::format("{}", config.optimizer.learning_rate)},
                {"seed", std::to_string(config.seed)},
                {"intra_op_threads", std::to_string(config.intra_op_threads)},
                {"memory", request.profile ? "modelled on the profile's sizes"
                                           : "modelled; without a profile no activations"}};
  info.base_time_ns = result.timeline_began;
  std::size_t next = 0;
  for (const std::uint32_t count : facts.partition) {
    info.layers.emplace_back(facts.layers.begin() + static_cast<std::ptrdiff_t>(next),
                             facts.layers.begin() + static_cast<std::ptrdiff_t>(next + count));
    next += count;
  }
  std::vector<traces::CounterSeries> counters = memory_counters(simulator::memory_over_time(
      schedule, result.timeline, memory_model(request, facts, schedule)));
  for (traces::CounterSeries& series : traces::weight_counters(schedule, result.timeline)) {
    counters.push_back(std::move(series));
  }
  return traces::chrome_trace(schedule, result.timeline, info, counters);
}

}  // namespace xpipe::app
