// Clips by the norm over all stages, and weights that two stages share: field cases I2 and I4, and
// sequential training as the oracle.
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/engine.h"
#include "executor/inline_backend.h"
#include "executor/torch/intra_op_threads.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

ir::Schedule gpipe_schedule(std::uint32_t stages,
                            std::uint32_t micro_batches,
                            std::uint32_t mini_batches,
                            const std::vector<scheduler::StageTie>& ties,
                            const scheduler::Passes& passes) {
  scheduler::PolicyRegistry registry;
  policies::register_all(registry);
  scheduler::StageGraph graph = scheduler::chain_of(stages);
  graph.ties = ties;
  ir::Result<ir::Schedule> schedule = scheduler::compile(*registry.find("gpipe").value(),
                                                         {.stages = stages,
                                                          .micro_batches = micro_batches,
                                                          .mini_batches = mini_batches,
                                                          .options = {}},
                                                         graph, passes);
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  return std::move(schedule.value());
}

scheduler::Passes clipping(double limit, scheduler::Passes passes = {}) {
  passes.clip_norm = limit;
  return passes;
}

/// A stage that is one number.
std::vector<nn::Layer> one_weight(double weight) {
  torch::nn::Linear linear(torch::nn::LinearOptions(1, 1).bias(false));
  const torch::NoGradGuard no_grad;
  linear->weight.fill_(weight);
  return {{.name = "w", .module = torch::nn::Sequential(linear)}};
}

/// One step of w1 and w2, one to a stage, whose backwards give them the gradients named.
std::vector<double> one_step(std::pair<double, double> weights,
                             std::pair<double, double> gradients,
                             double learning_rate,
                             const ir::Schedule& schedule,
                             const std::vector<nn::WeightTie>& ties,
                             std::optional<double>* norm = nullptr) {
  const ToyTraining training{
      .optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = learning_rate},
      .segments = 1,
      .mini_batches = {1}};
  nn::Samples one;
  one.inputs = torch::ones({1, 1});
  one.labels = torch::zeros({1}, torch::kInt64);
  ToyRun toy{schedule, one, nullptr};
  nn::RunOptions options{.optimizer = training.optimizer, .ties = ties};
  if (norm != nullptr) {
    options.clip_norm = 1.0;
  }
  std::vector<std::vector<nn::Layer>> parts{one_weight(weights.first), one_weight(weights.second)};
  toy.run = std::make_unique<nn::TrainingRun>(std::move(parts), toy.samples, options);
  executor::HandlerTable table = toy.run->handlers();
  executor::Handler& backward = table[static_cast<std::size_t>(ir::TaskKind::Backward)];
  backward = [&, inner = backward](const ir::Schedule& s, ir::TaskId id) {
    const ir::Status status = inner(s, id);
    const std::size_t k = ir::index_of(s.task(id).stage);
    const double gradient = k == 0 ? gradients.first : gradients.second;
    toy.run->stages()[k].set_gradients({torch::full({1, 1}, gradient)});
    return status;
  };
  const ir::Status status = run_segment(toy, training, 0, table, On::Cpu);
  REQUIRE_MESSAGE(status.ok(), status.error().to_string());
  if (norm != nullptr) {
    *norm = toy.run->take_records().front().gradient_norm;
  }
  return {toy.run->stages()[0].weights()[0].item<double>(),
          toy.run->stages()[1].weights()[0].item<double>()};
}

TEST_CASE("clip: one norm over both stages, 5, and not one each (I2)") {
  // (w2 w1 x - t)^2 with w = 4, 3, x = 1, t = 11.5 has the gradients 3 and 4.
  std::optional<double> norm;
  const std::vector<double> weights =
      one_step({4.0, 3.0}, {3.0, 4.0}, 1.0, gpipe_schedule(2, 1, 1, {}, clipping(1.0)), {}, &norm);
  REQUIRE(norm.has_value());
  CHECK(*norm == doctest::Approx(5.0).epsilon(1e-12));
  CHECK(weights[0] == doctest::Approx(3.4).epsilon(1e-6));
  CHECK(weights[1] == doctest::Approx(2.2).epsilon(1e-6));
}

TEST_CASE("tied weights: both copies take the sum of both gradients (I4)") {
  // (w2 w1 x - t)^2 with w = 2, 2, x = 1, t = 3 has the gradients 4 and 4.
  const std::vector<double> weights =
      one_step({2.0, 2.0}, {4.0, 4.0}, 0.1,
               gpipe_schedule(2, 1, 1, {{ir::StageId{0}, ir::StageId{1}, 4}}, {}),
               {{.first = 0, .first_parameter = 0, .second = 1, .second_parameter = 0}});
  CHECK(weights[0] == doctest::Approx(1.2).epsilon(1e-6));
  CHECK(weights[1] == doctest::Approx(1.2).epsilon(1e-6));
}

TEST_CASE("tied weights: a clip's norm counts them once") {
  std::optional<double> norm;
  one_step({2.0, 2.0}, {4.0, 4.0}, 0.1,
           gpipe_schedule(2, 1, 1, {{ir::StageId{0}, ir::StageId{1}, 4}}, clipping(1.0)),
           {{.first = 0, .first_parameter = 0, .second = 1, .second_parameter = 0}}, &norm);
  REQUIRE(norm.has_value());
  CHECK(*norm == doctest::Approx(8.0).epsilon(1e-12));
}

ToyTraining clip_training() {
  ToyTraining training;
  training.optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = 0.5, .momentum = 0.9};
  training.mini_batches = {12, 12, 12, 10};
  training.dtype = torch::kFloat64;
  return training;
}

/// Plain loops and LibTorch's own clip; counts the steps that were clipped.
std::vector<torch::Tensor> plainly_clipped(const ToyTraining& training,
                                           double limit,
                                           std::uint32_t micro_batches,
                                           int& clipped) {
  const nn::IntraOpThreads one(1);
  const nn::Segment segment = toy_segment(training, 0);
  const nn::Samples samples =
      toy_samples(static_cast<std::uint32_t>(segment.order.size()), training.dtype);
  const nn::Model model = toy_model(training.seed, training.dtype);
  std::vector<torch::Tensor> leaves = nn::parameters_of(model.layers);
  torch::optim::SGD optimizer(leaves, torch::optim::SGDOptions(training.optimizer.learning_rate)
                                          .momentum(training.optimizer.momentum));
  for (std::uint32_t epoch = 0; epoch < training.segments; ++epoch) {
    for (const nn::SampleRange& mini_batch : segment.mini_batches) {
      optimizer.zero_grad();
      for (std::uint32_t part = 0; part < micro_batches; ++part) {
        const nn::SampleRange range = nn::micro_batch_range(mini_batch, micro_batches, part);
        torch::Tensor x = nn::gather(samples.inputs, segment.order, range);
        for (const nn::Layer& layer : model.layers) {
          torch::nn::Sequential module = layer.module;
          x = module->forward(x);
        }
        const double share = static_cast<double>(range.count) / mini_batch.count;
        (torch::nn::functional::cross_entropy(x, nn::gather(samples.labels, segment.order, range)) *
         share)
            .backward();
      }
      clipped += torch::nn::utils::clip_grad_norm_(leaves, limit) > limit ? 1 : 0;
      optimizer.step();
    }
  }
  return leaves;
}

TEST_CASE("clip: gpipe equals sequential training with LibTorch's clip, whatever the cut") {
  const ToyTraining training = clip_training();
  constexpr double kLimit = 1.0;
  int clipped = 0;
  const std::vector<torch::Tensor> expected = plainly_clipped(training, kLimit, 3, clipped);
  CHECK(clipped > 1);
  CHECK(clipped < 8);  // both ways are taken
  const auto run = [&](std::uint32_t stages, const scheduler::Passes& passes, On on) {
    const auto toy = toy_run(gpipe_schedule(stages, 3, 4, {}, clipping(kLimit, passes)), training,
                             {.clip_norm = kLimit});
    run_all(*toy, training, on);
    return weights_of(*toy->run);
  };
  const std::vector<torch::Tensor> one_stage = run(1, {}, On::Inline);
  CHECK(largest_difference(one_stage, expected) < 1e-12);
  for (const std::uint32_t stages : {2U, 4U}) {
    CHECK(same_bits(run(stages, {}, On::Inline), one_stage));
    CHECK(same_bits(run(stages, {}, On::Cpu), one_stage));
  }
  CHECK(largest_difference(run(2, replicated({2, 1}), On::Cpu), expected) < 1e-12);
  CHECK(largest_difference(run(2, replicated({1, 3}), On::Cpu), expected) < 1e-12);
  CHECK_FALSE(same_bits(one_stage, trained(compiled("gpipe", 1, 3, 4), training)));
}

TEST_CASE("clip: a norm that is no number ends the run, with the task's name") {
  const ToyTraining training = clip_training();
  const auto toy =
      toy_run(gpipe_schedule(2, 3, 4, {}, clipping(1.0)), training, {.clip_norm = 1.0});
  executor::HandlerTable table = toy->run->handlers();
  executor::Handler& backward = table[static_cast<std::size_t>(ir::TaskKind::Backward)];
  backward = [&toy, inner = backward](const ir::Schedule& schedule, ir::TaskId id) {
    const ir::Status status = inner(schedule, id);
    toy->run->stages()[ir::index_of(schedule.task(id).stage)].scale_gradients(std::nan(""));
    return status;
  };
  const ir::Status status = run_segment(*toy, training, 0, table, On::Cpu);
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().kind == ir::ErrorKind::Runtime);
  CHECK(status.error().diagnostics.front().code == "norm-not-finite");
  CHECK(status.error().diagnostics.front().where.find("CLIP0") != std::string::npos);
}

TEST_CASE("accumulation: the gradient's scale depends neither on T nor on it (C4)") {
  ToyTraining training = clip_training();
  training.segments = 1;
  const nn::Samples samples = toy_samples(8, training.dtype);
  std::optional<double> first;
  for (const std::uint32_t accumulate : {1U, 2U}) {
    for (const std::uint32_t micro_batches : {1U, 2U, 4U, 8U}) {
      scheduler::Passes passes = clipping(1e9);
      passes.accumulate = accumulate;
      ToyRun toy{gpipe_schedule(2, micro_batches, accumulate, {}, passes), samples, nullptr};
      toy.run = std::make_unique<nn::TrainingRun>(
          nn::cut(toy_model(training.seed, training.dtype), toy_partition(2)), toy.samples,
          nn::RunOptions{.optimizer = training.optimizer, .clip_norm = 1e9});
      // The same rows in every mini-batch.
      nn::Segment segment;
      for (std::uint32_t i = 0; i < accumulate; ++i) {
        segment.mini_batches.push_back({8 * i, 8});
        for (std::uint32_t row = 0; row < 8; ++row) {
          segment.order.push_back(row);
        }
      }
      toy.run->begin_segment(toy.schedule, segment);
      executor::InlineBackend backend;
      REQUIRE(executor::run(toy.schedule, toy.run->handlers(), backend).ok());
      const std::optional<double> norm = toy.run->take_records().back().gradient_norm;
      REQUIRE(norm.has_value());
      CHECK(*norm == doctest::Approx(first.value_or(*norm)).epsilon(1e-12));
      first = norm;
    }
  }
}

TEST_CASE("accumulation: two mini-batches a step are those of one twice as large") {
  ToyTraining training = clip_training();  // 12, 12, 12, 10
  scheduler::Passes passes;
  passes.accumulate = 2;
  const std::vector<torch::Tensor> two = trained(compiled("gpipe", 2, 2, 4, {}, passes), training);
  training.mini_batches = {24, 22};
  CHECK(largest_difference(two, trained(compiled("gpipe", 1, 1, 2), training)) < 1e-12);
}

/// Two layers that share a weight, and two that do not.
nn::Model tied_model(bool as_one) {
  using torch::nn::Linear;
  using torch::nn::LinearOptions;
  using torch::nn::Sequential;
  using torch::nn::Tanh;
  torch::manual_seed(11);
  Linear first(LinearOptions(6, 6).bias(false));
  Linear middle(6, 6);
  Linear last(6, 5);
  Linear second = as_one ? first : Linear(LinearOptions(6, 6).bias(false));
  for (Linear linear : {first, middle, last}) {
    linear->to(torch::kFloat64);
  }
  if (!as_one) {
    second->to(torch::kFloat64);
    const torch::NoGradGuard no_grad;
    second->weight.copy_(first->weight);
  }
  nn::Model model{.name = "tied", .layers = {}};
  model.layers.push_back({.name = "a", .module = Sequential(first, Tanh())});
  model.layers.push_back({.name = "b", .module = Sequential(middle, Tanh())});
  model.layers.push_back({.name = "c", .module = Sequential(second, Tanh(), last)});
  return model;
}

TEST_CASE("tied weights: 50 steps on two stages are those of one weight, and the copies equal") {
  ToyTraining training = clip_training();
  training.optimizer = {.kind = nn::OptimizerKind::Adam, .learning_rate = 0.01};
  training.mini_batches.assign(25, 8);
  nn::Samples samples;
  samples.inputs = torch::randn({200, 6}, torch::kFloat64);
  samples.labels = torch::randint(0, 5, {200}, torch::kInt64);
  for (const bool clips : {false, true}) {
    CAPTURE(clips);
    const scheduler::Passes passes = clips ? clipping(0.3) : scheduler::Passes{};
    nn::RunOptions options{.optimizer = training.optimizer};
    if (clips) {
      options.clip_norm = 0.3;
    }
    // Layers a and c are different modules; in one stage as_one they are one tensor.
    ToyRun alone{gpipe_schedule(1, 4, 25, {}, passes), samples, nullptr};
    alone.run =
        std::make_unique<nn::TrainingRun>(nn::cut(tied_model(true), {3}), alone.samples, options);
    run_all(alone, training, On::Inline);
    options.ties = {{.first = 0, .first_parameter = 0, .second = 2, .second_parameter = 0}};
    ToyRun apart{gpipe_schedule(3, 4, 25, {{ir::StageId{0}, ir::StageId{2}, 288}}, passes), samples,
                 nullptr};
    apart.run = std::make_unique<nn::TrainingRun>(nn::cut(tied_model(false), {1, 1, 1}),
                                                  apart.samples, options);
    run_all(apart, training, On::Cpu);
    const std::vector<nn::Stage>& stages = apart.run->stages();
    CHECK(torch::equal(stages[0].weights()[0], stages[2].weights()[0]));
    std::vector<torch::Tensor> got = weights_of(*apart.run);
    got.erase(got.begin() + 3);  // c's copy
    CHECK(largest_difference(got, weights_of(*alone.run)) < 1e-12);
  }
}

}  // namespace
}  // namespace xpipe::tests
