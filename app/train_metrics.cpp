#include "app/train_metrics.h"

#include <optional>

#include <nlohmann/json.hpp>

namespace xpipe::app {

namespace {

using Json = nlohmann::ordered_json;
using executor::nn::EpochRecord;
using executor::nn::MiniBatchRecord;

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
  if (!record.prediction_error.empty()) {
    json["prediction_error"] = errors_json(record.prediction_error);
    json["unpredicted_error"] = errors_json(record.unpredicted_error);
  }
  return json;
}

}  // namespace

std::string metrics_lines(const executor::nn::TrainConfig& config,
                          const ir::Schedule& schedule,
                          const executor::nn::TrainResult& result) {
  Json options = Json::object();
  for (const auto& [name, value] : schedule.options) {
    options[name] = value;
  }
  std::string lines;
  std::size_t next = 0;
  for (const EpochRecord& epoch : result.epochs) {
    ir::Nanos previous = 0;
    for (; next < result.mini_batches.size() && result.mini_batches[next].epoch == epoch.epoch;
         ++next) {
      lines += mini_batch_json(result.mini_batches[next], previous).dump() + "\n";
      previous = result.mini_batches[next].ended;
    }
    Json json = {{"kind", "epoch"},
                 {"epoch", epoch.epoch},
                 {"loss", epoch.train_loss},
                 {"accuracy", epoch.test_accuracy},
                 {"train_accuracy", epoch.train_accuracy},
                 {"test_loss", epoch.test_loss},
                 {"samples_per_s", epoch.samples_per_s},
                 {"policy", schedule.policy},
                 {"options", options},
                 {"stages", schedule.stages.size()},
                 {"micro_batches", schedule.micro_batches},
                 {"batch_size", config.batch_size},
                 {"seed", config.seed},
                 {"schedule_version", ir::kScheduleFormatVersion}};
    if (config.prediction_error_every > 0) {
      json["probe_bytes"] = result.probe_bytes;
    }
    lines += json.dump() + "\n";
  }
  return lines;
}

}  // namespace xpipe::app
