#include "executor/torch/trainer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <torch/torch.h>

#include "executor/engine.h"
#include "executor/torch/evaluate.h"
#include "executor/torch/intra_op_threads.h"
#include "executor/torch/training_run.h"
#include "ir/text.h"
#include "scheduler/partition.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;
using ir::index_of;

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

/// What a schedule may hold and training has no way to do yet.
void refuse_what_cannot_run(const ir::Schedule& schedule, ir::Error& error) {
  for (std::size_t k = 0; k < schedule.stages.size(); ++k) {
    if (schedule.stages[k].is_replicated()) {
      error.diagnostics.push_back(
          {"wrong-schedule", "stage " + std::to_string(k),
           "it has " + std::to_string(schedule.stages[k].devices.size()) +
               " replicas, and training runs one of each stage; compile it without --replicas, or "
               "try it out with xpipe simulate or --device emulated"});
    }
  }
  for (const ir::Task& task : schedule.tasks) {
    if (task.kind() == ir::TaskKind::Recompute) {
      error.diagnostics.push_back(
          {"wrong-schedule", ir::to_text(task),
           "training keeps all activations and recomputes none; compile it with --recompute none, "
           "or try it out with xpipe simulate or --device emulated"});
      break;
    }
  }
}

ir::Status check_schedule(const ir::Schedule& schedule,
                          const TrainFacts& facts,
                          const TrainConfig& config) {
  ir::Error error{ErrorKind::Usage, {}};
  const auto expect = [&error](const char* what, std::size_t found, std::size_t wanted) {
    if (found != wanted) {
      error.diagnostics.push_back({"wrong-schedule", "schedule",
                                   "it has " + std::to_string(found) + " " + what +
                                       ", this training needs " + std::to_string(wanted)});
    }
  };
  expect("stages", schedule.stages.size(), facts.stages);
  expect("mini-batches", schedule.mini_batches, facts.mini_batches);
  if (schedule.micro_batches != 1) {
    expect("micro-batches a mini-batch", schedule.micro_batches, config.micro_batches);
  }
  refuse_what_cannot_run(schedule, error);
  return error.diagnostics.empty() ? ir::Status() : ir::Status(std::move(error));
}

/// When each mini-batch's last step ended.
void set_ends(const ir::Schedule& schedule,
              const ir::Timeline& timeline,
              std::vector<MiniBatchRecord>& records) {
  for (const ir::Span& span : timeline.spans) {
    if (const auto* step = std::get_if<ir::Step>(&schedule.task(span.task).payload)) {
      ir::Nanos& ended = records[index_of(step->mini_batch)].ended;
      ended = std::max(ended, span.end);
    }
  }
}

EpochRecord summarize(std::uint32_t epoch,
                      const std::vector<MiniBatchRecord>& records,
                      const ir::Timeline& timeline) {
  EpochRecord summary;
  summary.epoch = epoch;
  std::uint64_t samples = 0;
  for (const MiniBatchRecord& record : records) {
    summary.train_loss += record.loss * record.samples;
    summary.train_accuracy += record.accuracy * record.samples;
    samples += record.samples;
  }
  summary.train_loss /= static_cast<double>(samples);
  summary.train_accuracy /= static_cast<double>(samples);
  summary.train_time = ir::makespan(timeline);
  if (summary.train_time > 0) {
    summary.samples_per_s =
        static_cast<double>(samples) * 1e9 / static_cast<double>(summary.train_time);
  }
  return summary;
}

StageMemory memory_of(const Stage& stage, std::uint16_t slots) {
  StageMemory memory;
  for (const torch::Tensor& weight : stage.weights()) {
    memory.weights += static_cast<ir::Bytes>(weight.nbytes());
  }
  memory.slots = memory.weights * (slots - 1);
  memory.optimizer = stage.optimizer().state_bytes();
  memory.weight_storages = stage.weight_storages();
  memory.parameters = stage.weights().size();
  return memory;
}

/// A run and what its tasks refer to.
struct Running {
  Running(std::vector<std::vector<Layer>> parts,
          const ir::Schedule& plan,
          const Samples& samples,
          RunOptions options)
      : schedule(plan), run(std::move(parts), schedule, samples, std::move(options)) {
    handlers = run.handlers();
  }

  ir::Schedule schedule;
  TrainingRun run;
  HandlerTable handlers;
};

}  // namespace

struct Trainer::Parts {
  TrainConfig config;
  TrainFacts facts;
  Dataset data;
  EpochBatches batches;
  std::unique_ptr<Running> running;

  [[nodiscard]] SampleShape shape() const {
    const auto sizes = data.train.inputs.sizes();
    return {sizes[1], sizes[2], sizes[3]};
  }

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
  const ir::Result<ImageFolder> folder = read_image_folder(config.data);
  if (!folder.ok()) {
    return folder.error();
  }
  auto parts = std::make_unique<Parts>();
  parts->config = config;
  parts->data = normalized(folder.value());
  const ir::Result<Model> model = parts->model();
  if (!model.ok()) {
    return model.error();
  }
  ir::Result<std::vector<std::uint32_t>> partition = partition_of(config, model.value());
  if (!partition.ok()) {
    return partition.error();
  }
  parts->batches =
      epoch_batches(parts->data.train.count(), config.batch_size, config.micro_batches);
  if (parts->batches.mini_batches.empty()) {
    return usage("too-few-samples", "--micro-batches",
                 std::to_string(parts->data.train.count()) +
                     " training samples make no mini-batch of " +
                     std::to_string(config.micro_batches) + " micro-batches");
  }
  TrainFacts& facts = parts->facts;
  facts.stages = config.stages;
  facts.partition = std::move(partition.value());
  facts.mini_batches = static_cast<std::uint32_t>(parts->batches.mini_batches.size());
  facts.dropped_samples = parts->batches.dropped;
  facts.train_samples = parts->data.train.count();
  facts.test_samples = parts->data.test.count();
  facts.data_kind = parts->data.kind;
  facts.stage_graph = scheduler::chain_of(config.stages);
  const SampleRange largest =
      micro_batch_range(parts->batches.mini_batches.front(), config.micro_batches, 0);
  std::uint32_t k = 0;
  for (const std::vector<Layer>& part : cut(model.value(), facts.partition)) {
    std::int64_t parameters = 0;
    for (const Layer& layer : part) {
      facts.layers.push_back(layer.name);
      parameters += parameter_count(layer);
    }
    facts.stage_parameters.push_back(parameters);
    if (k + 1 < config.stages) {
      facts.stage_graph.links[k].bytes =
          part.back().output_size * largest.count * static_cast<ir::Bytes>(sizeof(float));
    }
    ++k;
  }
  return Trainer(std::move(parts));
}

ir::Result<TrainResult> Trainer::train(const ir::Schedule& schedule,
                                       Backend& backend,
                                       const TrainCallbacks& callbacks) {
  const TrainConfig& config = parts_->config;
  if (ir::Status status = check_schedule(schedule, parts_->facts, config); !status.ok()) {
    return status.error();
  }
  ir::Result<Model> model = parts_->model();
  if (!model.ok()) {
    return model.error();
  }
  const IntraOpThreads threads(config.intra_op_threads);
  parts_->running = std::make_unique<Running>(
      cut(model.value(), parts_->facts.partition), schedule, parts_->data.train,
      RunOptions{.optimizer = config.optimizer,
                 .prediction = prediction_form(config, schedule),
                 .seed = config.seed,
                 .stop_on_nan = config.stop_on_nan,
                 .prediction_error_every = config.prediction_error_every,
                 .interrupted = callbacks.interrupted,
                 .on_mini_batch = callbacks.on_mini_batch});
  TrainingRun& run = parts_->running->run;
  HandlerTable& handlers = parts_->running->handlers;
  if (callbacks.wrap_handlers) {
    callbacks.wrap_handlers(handlers);
  }
  TrainResult result;
  result.timeline_epoch =
      std::min(config.trace_epoch.value_or(config.epochs - 1), config.epochs - 1);
  for (std::uint32_t epoch = 0; epoch < config.epochs; ++epoch) {
    run.begin_segment({.epoch = epoch,
                       .order = epoch_order(parts_->data.train.count(), config.seed, epoch),
                       .mini_batches = parts_->batches.mini_batches});
    const auto began = std::chrono::system_clock::now().time_since_epoch();
    ir::Result<ir::Timeline> timeline = executor::run(parts_->running->schedule, handlers, backend);
    if (!timeline.ok()) {
      return timeline.error();
    }
    std::vector<MiniBatchRecord> records = run.take_records();
    set_ends(schedule, timeline.value(), records);
    EpochRecord summary = summarize(epoch, records, timeline.value());
    const ir::Result<Evaluation> test = evaluate(run.stages(), parts_->data.test);
    if (!test.ok()) {
      return test.error();
    }
    summary.test_loss = test.value().loss;
    summary.test_accuracy = test.value().accuracy;
    if (callbacks.on_epoch) {
      callbacks.on_epoch(summary, records);
    }
    result.epochs.push_back(summary);
    std::ranges::move(records, std::back_inserter(result.mini_batches));
    if (epoch == result.timeline_epoch) {
      result.timeline = std::move(timeline.value());
      result.timeline_began = std::chrono::duration_cast<std::chrono::nanoseconds>(began).count();
    }
  }
  for (std::size_t k = 0; k < run.stages().size(); ++k) {
    result.memory.push_back(memory_of(run.stages()[k], schedule.stages[k].slots));
  }
  result.probe_bytes = run.probe_bytes();
  result.weights_hash = weights_hash(run.stages());
  return result;
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
