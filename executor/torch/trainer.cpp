#include "executor/torch/trainer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <torch/torch.h>

#include "executor/torch/checkpoint_plan.h"
#include "executor/torch/dataset.h"
#include "executor/torch/model_names.h"
#include "executor/torch/model_options.h"
#include "executor/torch/rank_checkpoint.h"
#include "executor/torch/rank_contents.h"
#include "executor/torch/script_model.h"
#include "executor/torch/ties.h"
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
  if (!model.stage_layers.empty()) {
    const std::vector<std::uint32_t>& only = model.stage_layers;
    const bool is_asked_for = config.partition.empty() || config.partition == only;
    if (only.size() != config.stages || !is_asked_for) {
      return usage("bad-partition", is_asked_for ? "--stages" : "--partition",
                   "model " + config.model + " comes as " + std::to_string(only.size()) +
                       " archives, one a stage; want --stages " + std::to_string(only.size()) +
                       " and no --partition");
    }
    return only;
  }
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

/// Which stages exchange tensors; `bytes` of each number of a sample's output. Requires: the
/// partition of `facts`.
void link_stages(const Model& model, std::int64_t bytes, TrainFacts& facts) {
  facts.wiring = wire(facts.partition, model.skips);
  facts.stage_graph.stages = static_cast<std::uint32_t>(facts.wiring.size());
  for (std::size_t k = 0; k < facts.wiring.size(); ++k) {
    for (const StagePort& port : facts.wiring[k].to) {
      ir::Bytes sum = 0;
      for (const std::size_t producer : port.producers) {
        sum += model.layers[producer].output_size * bytes;
      }
      facts.stage_graph.links.push_back({ir::StageId{static_cast<std::uint16_t>(k)},
                                         ir::StageId{static_cast<std::uint16_t>(port.stage)}, sum});
    }
  }
}

/// Weights that two stages hold: policies sum their gradients, or refuse. Requires: cut() by the
/// partition of `facts`; `parts` are its stages.
ir::Status find_ties(const Model& model,
                     const std::vector<std::vector<Layer>>& parts,
                     TrainFacts& facts) {
  for (const std::vector<StageParameter>& tie : ties_across_stages(model, facts.partition)) {
    if (tie.size() > 2) {
      return usage("parted-tie", "--stages",
                   "a tied weight of model " + model.name + " would be in " +
                       std::to_string(tie.size()) +
                       " stages, and two can sum their gradients; use fewer stages, or train it "
                       "untied (--set tie=false)");
    }
    const auto [first, second] = std::pair(tie.front(), tie.back());
    facts.ties.push_back({first.stage, first.parameter, second.stage, second.parameter});
    const auto bytes =
        static_cast<ir::Bytes>(parameters_of(parts[first.stage])[first.parameter].nbytes());
    const ir::StageId a{static_cast<std::uint16_t>(first.stage)};
    const ir::StageId b{static_cast<std::uint16_t>(second.stage)};
    std::vector<scheduler::StageTie>& ties = facts.stage_graph.ties;
    const auto known = std::ranges::find_if(
        ties, [&](const scheduler::StageTie& t) { return t.first == a && t.second == b; });
    if (known == ties.end()) {
      ties.push_back({a, b, bytes});
    } else {
      known->bytes += bytes;
    }
  }
  std::ranges::sort(facts.stage_graph.ties, {},
                    [](const scheduler::StageTie& t) { return std::pair(t.first, t.second); });
  return {};
}

/// Whether both are the same modules, and not two models that begin alike.
bool have_one_tensor(const Model& a, const Model& b) {
  const std::vector<torch::Tensor> of_a = parameters_of(a.layers);
  const std::vector<torch::Tensor> of_b = parameters_of(b.layers);
  return !of_a.empty() && !of_b.empty() && of_a.front().is_same(of_b.front());
}

ModelFactory factory_of(const TrainConfig& config) {
  return [name = config.model, options = config.model_options](
             const SampleShape& input, std::int64_t classes, std::uint64_t seed) {
    return is_model_file(name) ? load_script_model(name, input, classes)
                               : build_model(name, options, input, classes, seed);
  };
}

bool has_batch_norm(const Layer& layer) {
  return std::ranges::any_of(layer.module->modules(), [](const auto& module) {
    return module->template as<torch::nn::BatchNorm1d>() != nullptr ||
           module->template as<torch::nn::BatchNorm2d>() != nullptr;
  });
}

}  // namespace

struct Trainer::Parts {
  TrainConfig config;
  Peers* peers = nullptr;
  TrainFacts facts;
  Dataset data;
  EpochBatches batches;
  ModelFactory factory;
  std::optional<Model> trained;  ///< of the last train()
  CheckpointPlan checkpoints;
  std::unique_ptr<TrainLoop> loop;  ///< of the last train(): what tasks left behind refer to

  /// Settles what depends on the number of steps, and opens the checkpoints.
  [[nodiscard]] ir::Status open();

  [[nodiscard]] ir::Result<Model> model() const {
    return factory(data.shape, data.classes, config.seed);
  }
};

ir::Status Trainer::Parts::open() {
  LearningRateSchedule& rates = config.optimizer.schedule;
  if (rates.shape == LearningRateShape::Cosine && rates.total == 0) {
    rates.total = std::uint64_t{config.epochs} * facts.mini_batches;
    if (rates.total <= rates.warm_up) {
      return usage("bad-value", "--warm-up",
                   std::to_string(rates.warm_up) + " steps of warm-up in a training of " +
                       std::to_string(rates.total) + "; want fewer");
    }
  }
  ir::Result<CheckpointPlan> opened = peers == nullptr
                                          ? open_checkpoints(config, facts)
                                          : open_checkpoints_at_zero(*peers, config, facts);
  if (!opened.ok()) {
    return opened.status();
  }
  checkpoints = std::move(opened).value();
  for (const SegmentPlan& segment :
       segments_of_epoch(batches, config.micro_batches, checkpoints.every_mini_batches, {})) {
    facts.segment_mini_batches = std::max(facts.segment_mini_batches, segment.mini_batches);
  }
  if (checkpoints.resume) {
    facts.resumed_from = checkpoints.resume->path;
    facts.resumed_at = checkpoints.resume->manifest.position;
  }
  facts.notes = checkpoints.notes;
  return {};
}

Trainer::Trainer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

const TrainFacts& Trainer::facts() const {
  return parts_->facts;
}

ir::Result<Trainer> Trainer::create(const TrainConfig& config, Peers* peers) {
  return create(config, factory_of(config), peers);
}

ir::Result<Trainer> Trainer::create(const TrainConfig& config,
                                    const ModelFactory& factory,
                                    Peers* peers) {
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
  parts->peers = peers;
  parts->factory = factory;
  parts->data = std::move(data.value());
  const ir::Result<Model> model = parts->model();
  if (!model.ok()) {
    return model.error();
  }
  if (ir::Status status = check_skips(model.value().skips, model.value().layers.size());
      !status.ok()) {
    return status.error();
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
  facts.last_batch_samples = parts->batches.mini_batches.back().count;
  facts.dropped_samples = parts->batches.dropped;
  facts.train_samples = parts->data.train->count();
  facts.test_samples = parts->data.test->count();
  facts.data_kind = parts->data.kind;
  const SampleRange& first = parts->batches.mini_batches.front();
  const SampleRange largest =
      micro_batch_range(first, std::min(config.micro_batches, first.count), 0);
  if (peers != nullptr) {
    ir::Result<std::string> content = samples_fingerprint(*parts->data.train);
    if (!content.ok()) {
      return content.error();
    }
    facts.data_content = std::move(content).value();
    facts.model_content = model_fingerprint(model.value());
  }
  const std::vector<std::vector<Layer>> stages = cut(model.value(), facts.partition);
  for (const std::vector<Layer>& part : stages) {
    for (const Layer& layer : part) {
      facts.layers.push_back(layer.name);
    }
    facts.stage_parameters.push_back(parameter_count(part));
    facts.has_batch_norm = facts.has_batch_norm || std::ranges::any_of(part, has_batch_norm);
  }
  link_stages(model.value(), largest.count * compute_type_bytes(config.compute.dtype), facts);
  if (ir::Status status = find_ties(model.value(), stages, facts); !status.ok()) {
    return status.error();
  }
  if (ir::Status status = parts->open(); !status.ok()) {
    return status.error();
  }
  return Trainer(std::move(parts));
}

ir::Result<TrainResult> Trainer::train(const ScheduleSource& source,
                                       Backend& backend,
                                       const TrainCallbacks& callbacks) {
  parts_->loop.reset();
  parts_->trained.reset();
  parts_->loop =
      std::make_unique<TrainLoop>(TrainInputs{parts_->config, parts_->facts, parts_->data,
                                              parts_->batches, parts_->checkpoints},
                                  source, callbacks);
  const auto layers = [this]() -> ir::Result<std::vector<std::vector<Layer>>> {
    const ir::Result<Model> model = parts_->model();
    if (!model.ok()) {
      return model.error();
    }
    if (!parts_->trained) {
      parts_->trained = model.value();
    } else if (have_one_tensor(*parts_->trained, model.value())) {
      return usage("not-replicated", "--replicas",
                   "a net of one's own is there once; train it without replicas");
    }
    return cut(model.value(), parts_->facts.partition);
  };
  return parts_->loop->run(layers, backend);
}

ir::Status Trainer::save_model(const std::string& path) const {
  if (!parts_->trained) {
    return usage("not-trained", path, "nothing has been trained yet");
  }
  // The evaluation at the end of training has bound the modules to the master weights, those that
  // other processes hold excepted.
  if (parts_->peers != nullptr) {
    if (ir::Status status = parts_->loop->gather_model(*parts_->trained);
        !status.ok() || parts_->peers->rank() != 0) {
      return status;
    }
  }
  return save_script_model(*parts_->trained, path);
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
