#include "app/train_agreement.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "executor/torch/checkpoint_plan.h"
#include "ir/schedule_json.h"

namespace xpipe::app {

namespace {

namespace nn = executor::nn;

template <typename T>
std::string number(T value) {
  return fmt::format("{}", value);
}

std::string yes_or_no(bool value) {
  return value ? "yes" : "no";
}

/// "warm_up" as "--warm-up"; what is no option by itself as it is.
std::string option_of(const std::string& setting) {
  constexpr std::array<std::string_view, 6> kNoOptions{"data",  "train_samples", "beta1",
                                                       "beta2", "alpha",         "eps"};
  if (std::ranges::find(kNoOptions, setting) != kNoOptions.end()) {
    return setting;
  }
  if (setting.starts_with("model.")) {
    return "--set " + setting.substr(6);
  }
  if (setting.starts_with("augment_")) {
    return "--augment " + setting.substr(8);
  }
  std::string name = "--" + setting;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

/// What decides the order of tasks; the schedule's hash has it all, and does not say what differs.
void add_schedule(const TrainRequest& request,
                  const ir::Schedule& schedule,
                  executor::Items& items) {
  items.emplace_back("--policy", schedule.policy);
  items.emplace_back("--stages", number(request.config.stages));
  items.emplace_back("--micro-batches", number(request.config.micro_batches));
  std::string placement;
  for (const ir::StageInfo& stage : schedule.stages) {
    std::string devices;
    for (const ir::DeviceId device : stage.devices) {
      devices += (devices.empty() ? "" : "+") + number(ir::index_of(device));
    }
    placement += (placement.empty() ? "" : ",") + devices;
  }
  items.emplace_back("devices of the stages", placement);
  const scheduler::Passes& passes = request.passes;
  items.emplace_back("--sends", number(static_cast<int>(passes.sends)));
  items.emplace_back("--accumulate", number(passes.accumulate));
  for (const auto& [name, value] : schedule.options) {
    items.emplace_back("option " + name, value);
  }
  items.emplace_back("schedule", executor::fingerprint(ir::schedule_to_json(schedule)));
}

/// Only rank 0's folders and files count; that they are written, all take part in.
void add_checkpoints(const TrainRequest& request, executor::Items& items) {
  const nn::CheckpointConfig& asked = request.config.checkpoint;
  items.emplace_back("--checkpoint", yes_or_no(!asked.folder.empty()));
  items.emplace_back("--checkpoint-every",
                     asked.every_mini_batches > 0 ? number(asked.every_mini_batches)
                     : asked.every_epochs > 0     ? number(asked.every_epochs) + "epochs"
                                                  : "the default");
  items.emplace_back("--resume", yes_or_no(!asked.resume.empty()));
  items.emplace_back("--force", yes_or_no(asked.force));
  items.emplace_back("--export", yes_or_no(!asked.export_file.empty()));
  items.emplace_back("--save-model", yes_or_no(request.saves_model));
}

}  // namespace

executor::Items items_to_agree(const TrainRequest& request,
                               const nn::TrainFacts& facts,
                               const ir::Schedule& schedule) {
  const nn::TrainConfig& config = request.config;
  executor::Items items = {{"xpipe", XPIPE_VERSION}};
  for (const auto& [name, value] : nn::fixed_settings(config, facts)) {
    items.emplace_back(option_of(name), value);
  }
  items.emplace_back("content of the data", facts.data_content);
  items.emplace_back("test samples", number(facts.test_samples));
  items.emplace_back("layers",
                     executor::fingerprint(fmt::format("{}", fmt::join(facts.layers, "\n"))));
  items.emplace_back("parameters", fmt::format("{}", fmt::join(facts.stage_parameters, ",")));
  items.emplace_back("content of the model", facts.model_content);
  items.emplace_back("partition", fmt::format("{}", fmt::join(facts.partition, ",")));
  items.emplace_back("--dtype", std::string(nn::compute_type_name(config.compute.dtype)));
  items.emplace_back("--device", config.device == nn::TrainDevice::Cuda ? "cuda" : "cpu or inline");
  items.emplace_back("--epochs", number(config.epochs));
  items.emplace_back("--intra-op-threads", number(config.intra_op_threads));
  items.emplace_back("--stop-on-nan", yes_or_no(config.stop_on_nan));
  items.emplace_back("--prediction-error", number(config.prediction_error_every));
  items.emplace_back("--timeout-s", number(config.time_out.count() / 1000));
  add_checkpoints(request, items);
  items.emplace_back("mini-batches of a segment", number(facts.segment_mini_batches));
  add_schedule(request, schedule, items);
  return items;
}

}  // namespace xpipe::app
