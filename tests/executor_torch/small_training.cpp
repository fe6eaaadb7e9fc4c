#include "tests/executor_torch/small_training.h"

#include <memory>
#include <utility>

#include "executor/inline_backend.h"
#include "executor/torch/dropout.h"
#include "executor/torch/train_loop.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {

nn::Model small_model(std::uint64_t seed, bool regularized) {
  nn::Model model{.name = "small", .layers = {}};
  torch::manual_seed(seed);
  for (std::uint64_t l = 0; l < 4; ++l) {
    torch::nn::Sequential layer;
    layer->push_back(torch::nn::Linear(8, 8));
    if (l == 2 && regularized) {
      layer->push_back(torch::nn::BatchNorm1d(8));
    }
    layer->push_back(torch::nn::Tanh());
    if (regularized) {
      layer->push_back(nn::KeyedDropout(0.2, l));
    }
    layer->to(torch::kFloat64);
    model.layers.push_back({.name = "layer" + std::to_string(l), .module = layer});
  }
  return model;
}

nn::TrainConfig small_config(const std::string& policy, std::uint32_t stages) {
  nn::TrainConfig config;
  config.model = "small";
  config.stages = stages;
  config.partition = stages == 2 ? std::vector<std::uint32_t>{2, 2} : std::vector{1U, 1U, 1U, 1U};
  config.micro_batches = policy == "gpipe" || policy == "xpipe" ? 2 : 1;
  config.batch_size = 8;
  config.epochs = 2;
  config.seed = 1;
  config.optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = 0.05, .momentum = 0.9};
  config.optimizer.schedule = {.shape = nn::LearningRateShape::Cosine, .warm_up = 3, .total = 16};
  config.extrapolation = policy == "spectrain" ? nn::Extrapolation::SmoothedGradient
                                               : nn::Extrapolation::OptimizerStep;
  return config;
}

ir::Result<nn::TrainResult> train_small(const std::string& policy,
                                        const nn::TrainConfig& config,
                                        const nn::TrainCallbacks& callbacks,
                                        std::uint32_t samples,
                                        bool regularized) {
  nn::Dataset data;
  data.kind = "noise";
  auto train = std::make_unique<nn::Samples>();
  train->inputs = toy_samples(samples, torch::kFloat64).inputs.flatten(1).slice(1, 0, 8);
  train->labels = train->inputs.argmax(1);
  auto test = std::make_unique<nn::Samples>();
  test->inputs = train->inputs.slice(0, 0, 20);
  test->labels = train->labels.slice(0, 0, 20);
  data.train = std::move(train);
  data.test = std::move(test);
  const nn::EpochBatches batches =
      nn::epoch_batches(samples, config.batch_size, config.recipe.last_batch);
  nn::TrainFacts facts;
  facts.stages = config.stages;
  facts.partition = config.partition;
  facts.mini_batches = static_cast<std::uint32_t>(batches.mini_batches.size());
  facts.last_batch_samples = batches.mini_batches.back().count;
  facts.train_samples = samples;
  facts.data_kind = data.kind;
  ir::Result<nn::CheckpointPlan> plan = nn::open_checkpoints(config, facts);
  if (!plan.ok()) {
    return plan.error();
  }
  const nn::ScheduleSource source = [&](std::uint32_t micro_batches, std::uint32_t mini_batches) {
    return compiled(policy, config.stages, micro_batches, mini_batches);
  };
  nn::TrainLoop loop({config, facts, data, batches, plan.value()}, source, callbacks);
  executor::InlineBackend backend;
  const auto layers = [&]() -> ir::Result<std::vector<std::vector<nn::Layer>>> {
    return nn::cut(small_model(config.seed, regularized), config.partition);
  };
  return loop.run(layers, backend);
}

}  // namespace xpipe::tests
