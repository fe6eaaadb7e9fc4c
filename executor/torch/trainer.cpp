#include "executor/torch/trainer.h"

#include <algorithm>
#include <utility>

#include <torch/torch.h>

#include "executor/torch/dataset.h"
#include "executor/torch/model_options.h"
#include "executor/torch/train_loop.h"
#include "scheduler/partition.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;

ir::Error usage(std::string code, std::string where, std::string what) {
  return ir::make_error(ErrorKind::Usage, std::move(code), std::move(where), std::move(what));
}

ir::Result<std::vector<std::uint32_t>> partition_of(const TrainConfig& config, const Model& model) {
  const ir::Profile profile = estimated_profile(model, 1);
  if (config.partition.empty()) {
    return scheduler::balanced_partition(profile, config.stages);
  }
  if (config.partition.size() != config.stages) {
    return usage("bad-partition", "--partition",
                 std::to_string(config.partition.size()) + " numbers for " +
                     std::to_string(config.stages) + " stages; want one a stage");
  }
  if (ir::Status status = scheduler::check_partition(profile, config.partition); !status.ok()) {
    return status.error();
  }
  return config.partition;
}

}  // namespace

struct Trainer::Parts {
  TrainConfig config;
  TrainFacts facts;
  Dataset data;
  EpochBatches batches;
  std::unique_ptr<TrainLoop> loop;  ///< of the last train(): what tasks left behind refer to

  [[nodiscard]] SampleShape shape() const { return data.shape; }

  [[nodiscard]] ir::Result<Model> model() const {
    return build_model(config.model, config.model_options, shape(), data.classes, config.seed);
  }
};

Trainer::Trainer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

const TrainFacts& Trainer::facts() const {
  return parts_->facts;
}

ir::Result<Trainer> Trainer::create(const TrainConfig& config) {
  if (ir::Status status = check_config(config); !status.ok()) {
    return status.error();
  }
  const ir::Result<std::uint32_t> sequence = sequence_of(config.model, config.model_options);
  if (!sequence.ok()) {
    return sequence.error();
  }
  ir::Result<Dataset> data =
      open_dataset(config.data, config.data_options, sequence.value(), config.seed);
  if (!data.ok()) {
    return data.error();
  }
  auto parts = std::make_unique<Parts>();
  parts->config = config;
  parts->data = std::move(data.value());
  const ir::Result<Model> model = parts->model();
  if (!model.ok()) {
    return model.error();
  }
  ir::Result<std::vector<std::uint32_t>> partition = partition_of(config, model.value());
  if (!partition.ok()) {
    return partition.error();
  }
  parts->batches =
      epoch_batches(parts->data.train->count(), config.batch_size, config.recipe.last_batch);
  if (parts->batches.mini_batches.empty()) {
    return usage(
        "too-few-samples", "--batch-size",
        std::to_string(parts->data.train->count()) + " training samples make no mini-batch of " +
            std::to_string(config.batch_size) + "; lower it, or train them with --last-batch keep");
  }
  TrainFacts& facts = parts->facts;
  facts.stages = config.stages;
  facts.partition = std::move(partition.value());
  facts.mini_batches = static_cast<std::uint32_t>(parts->batches.mini_batches.size());
  for (const SegmentPlan& segment :
       segments_of_epoch(parts->batches, config.micro_batches, 0, {})) {
    facts.segment_mini_batches = std::max(facts.segment_mini_batches, segment.mini_batches);
  }
  facts.last_batch_samples = parts->batches.mini_batches.back().count;
  facts.dropped_samples = parts->batches.dropped;
  facts.train_samples = parts->data.train->count();
  facts.test_samples = parts->data.test->count();
  facts.data_kind = parts->data.kind;
  facts.stage_graph = scheduler::chain_of(config.stages);
  const SampleRange& first = parts->batches.mini_batches.front();
  const SampleRange largest =
      micro_batch_range(first, std::min(config.micro_batches, first.count), 0);
  std::uint32_t k = 0;
  for (const std::vector<Layer>& part : cut(model.value(), facts.partition)) {
    for (const Layer& layer : part) {
      facts.layers.push_back(layer.name);
    }
    facts.stage_parameters.push_back(parameter_count(part));
    if (k + 1 < config.stages) {
      facts.stage_graph.links[k].bytes =
          part.back().output_size * largest.count * static_cast<ir::Bytes>(sizeof(float));
    }
    ++k;
  }
  return Trainer(std::move(parts));
}

ir::Result<TrainResult> Trainer::train(const ScheduleSource& source,
                                       Backend& backend,
                                       const TrainCallbacks& callbacks) {
  parts_->loop.reset();
  parts_->loop = std::make_unique<TrainLoop>(
      TrainInputs{parts_->config, parts_->facts, parts_->data, parts_->batches}, source, callbacks);
  const auto layers = [this]() -> ir::Result<std::vector<std::vector<Layer>>> {
    const ir::Result<Model> model = parts_->model();
    if (!model.ok()) {
      return model.error();
    }
    return cut(model.value(), parts_->facts.partition);
  };
  return parts_->loop->run(layers, backend);
}

PredictionForm prediction_form(const TrainConfig& config, const ir::Schedule& schedule) {
  PredictionForm form;
  const auto option = [&schedule](const char* name) -> std::optional<std::string> {
    const auto found = std::ranges::find(schedule.options, std::string(name),
                                         &std::pair<std::string, std::string>::first);
    return found == schedule.options.end() ? std::nullopt : std::optional(found->second);
  };
  form.gamma = config.gamma.value_or(std::stod(option("gamma").value_or("0.9")));
  form.extrapolation = config.extrapolation;
  const bool literal = option("bias") == "literal";
  form.bias = config.bias.value_or(literal ? BiasCorrection::Literal : BiasCorrection::Standard);
  return form;
}

}  // namespace xpipe::executor::nn
