// Learning-rate schedules: closed forms, plain training with the rates set by hand, and what
// predictions sum.
#include "executor/torch/learning_rate.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "executor/torch/intra_op_threads.h"
#include "executor/torch/stage_optimizer.h"
#include "tests/executor_torch/replay.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

using nn::LearningRateSchedule;
using nn::LearningRateShape;
using nn::OptimizerConfig;
using nn::OptimizerKind;

constexpr double kBase = 0.08;

const LearningRateSchedule kConstant{};
const LearningRateSchedule kWarm{.warm_up = 4};
const LearningRateSchedule kStep{
    .shape = LearningRateShape::Step, .warm_up = 4, .step_every = 6, .gamma = 0.5};
const LearningRateSchedule kCosine{.shape = LearningRateShape::Cosine, .warm_up = 4, .total = 20};

double at(const LearningRateSchedule& schedule, std::uint64_t step) {
  return nn::learning_rate_at(kBase, schedule, step);
}

TEST_CASE("learning rates: closed forms, step by step") {
  for (std::uint64_t t = 0; t < 30; ++t) {
    CAPTURE(t);
    const auto u = static_cast<double>(t) - 4.0;
    const double warm = kBase * static_cast<double>(t + 1) / 4.0;
    CHECK(at(kConstant, t) == kBase);
    CHECK(at(kWarm, t) == doctest::Approx(t < 4 ? warm : kBase));
    CHECK(at(kStep, t) == doctest::Approx(t < 4 ? warm : kBase * std::pow(0.5, std::floor(u / 6))));
    const double cosine = t < 20 ? kBase * (1.0 + std::cos(std::numbers::pi * u / 16.0)) / 2.0 : 0;
    CHECK(at(kCosine, t) == doctest::Approx(t < 4 ? warm : cosine));
  }
  CHECK(at(kWarm, 3) == kBase);  // the last step of the warm-up goes at the full rate
  CHECK(at(kCosine, 4) == kBase);
  CHECK(at(kCosine, 12) == doctest::Approx(kBase / 2));
  CHECK(at(kCosine, 20) == 0.0);
}

TEST_CASE("learning rates: a sum is that of its steps") {
  for (const LearningRateSchedule& schedule : {kConstant, kWarm, kStep, kCosine}) {
    for (std::uint64_t t = 0; t < 25; ++t) {
      double sum = 0.0;
      for (std::uint32_t count = 0; count < 5; ++count) {
        CHECK(nn::learning_rate_sum(kBase, schedule, t, count) == doctest::Approx(sum));
        sum += at(schedule, t + count);
      }
    }
  }
}

const std::vector<OptimizerConfig> kUpdateRules{
    {.kind = OptimizerKind::Sgd},
    {.kind = OptimizerKind::Sgd, .momentum = 0.9, .weight_decay = 0.01},
    {.kind = OptimizerKind::Adam, .weight_decay = 0.02},
    {.kind = OptimizerKind::AdamW, .weight_decay = 0.1},
    {.kind = OptimizerKind::RmsProp, .weight_decay = 0.03},
    {.kind = OptimizerKind::RmsProp, .momentum = 0.5},
};

/// LibTorch's optimizer, as its user makes it.
std::unique_ptr<torch::optim::Optimizer> plain(const OptimizerConfig& o, const torch::Tensor& w) {
  namespace optim = torch::optim;
  const std::vector<torch::Tensor> weights{w};
  switch (o.kind) {
    case OptimizerKind::Sgd:
      return std::make_unique<optim::SGD>(
          weights, optim::SGDOptions(kBase).momentum(o.momentum).weight_decay(o.weight_decay));
    case OptimizerKind::Adam:
      return std::make_unique<optim::Adam>(weights,
                                           optim::AdamOptions(kBase).weight_decay(o.weight_decay));
    case OptimizerKind::AdamW:
      return std::make_unique<optim::AdamW>(
          weights, optim::AdamWOptions(kBase).weight_decay(o.weight_decay));
    case OptimizerKind::RmsProp:
      return std::make_unique<optim::RMSprop>(
          weights, optim::RMSpropOptions(kBase).momentum(o.momentum).weight_decay(o.weight_decay));
  }
  return nullptr;
}

TEST_CASE("optimizers: every rate and decay is LibTorch's with the rates set by hand") {
  for (const LearningRateSchedule& schedule : {kConstant, kStep, kCosine}) {
    for (OptimizerConfig config : kUpdateRules) {
      CAPTURE(nn::optimizer_name(config.kind));
      config.learning_rate = kBase;
      config.schedule = schedule;
      const torch::Tensor start = torch::tensor({1.0, -2.0, 0.5}, torch::kFloat64);
      const torch::Tensor ours = start.clone();
      const torch::Tensor theirs = start.clone().requires_grad_(true);
      nn::StageOptimizer optimizer(config, {}, true, {ours});
      const auto reference = plain(config, theirs);
      for (int t = 0; t < 12; ++t) {
        const torch::Tensor gradient = torch::tensor({0.3, -0.1 * t, 0.2 + t}, torch::kFloat64);
        reference->param_groups()[0].options().set_lr(
            nn::learning_rate_at(kBase, schedule, static_cast<std::uint64_t>(t)));
        theirs.mutable_grad() = gradient.clone();
        reference->step();
        optimizer.step({gradient.clone()});
        CAPTURE(t);
        CHECK(torch::equal(ours, theirs.detach()));
      }
    }
  }
}

TEST_CASE("predictions: the rates of the steps aimed at are summed") {
  OptimizerConfig config{.kind = OptimizerKind::Sgd, .learning_rate = kBase, .momentum = 0.9};
  config.schedule = kStep;
  const torch::Tensor weight = torch::tensor({1.0, -2.0}, torch::kFloat64);
  const torch::Tensor slot = torch::zeros_like(weight);
  nn::StageOptimizer optimizer(config, {}, true, {weight});
  torch::Tensor buffer = torch::zeros_like(weight);
  for (std::uint64_t t = 0; t < 14; ++t) {
    const torch::Tensor gradient = torch::tensor({0.5, -0.25}, torch::kFloat64);
    buffer = t == 0 ? gradient.clone() : buffer * 0.9 + gradient;
    optimizer.step({gradient.clone()});
    optimizer.predict(3, {slot});
    const double rates = at(kStep, t + 1) + at(kStep, t + 2) + at(kStep, t + 3);
    CHECK(optimizer.learning_rate_ahead(3) == doctest::Approx(rates));
    CHECK(torch::allclose(slot, weight - rates * buffer));
  }
}

TEST_CASE("asynchronous policies: equal a replay that follows the same schedule of rates") {
  for (const char* policy : {"xpipe", "spectrain", "pipedream"}) {
    for (const LearningRateSchedule& schedule : {kStep, kCosine}) {
      ToyTraining training;
      training.dtype = torch::kFloat64;
      training.optimizer = {
          .kind = OptimizerKind::Sgd, .learning_rate = 0.1, .momentum = 0.9, .schedule = schedule};
      const bool smooth = std::string(policy) == "spectrain";
      training.prediction.extrapolation =
          smooth ? nn::Extrapolation::SmoothedGradient : nn::Extrapolation::OptimizerStep;
      const std::vector<torch::Tensor> got =
          trained(compiled(policy, 4, 1, static_cast<std::uint32_t>(training.mini_batches.size())),
                  training);
      const Rules rules = smooth                               ? spectrain_rules(4, 1)
                          : std::string(policy) == "pipedream" ? pipedream_rules(4)
                                                               : xpipe_rules(4, 1, "both");
      CAPTURE(policy);
      CHECK(largest_difference(got, replayed(training, 4, 1, rules)) < 1e-9);
      ToyTraining constant = training;
      constant.optimizer.schedule = kConstant;
      CHECK(largest_difference(got, replayed(constant, 4, 1, rules)) > 1e-5);
    }
  }
}

}  // namespace
}  // namespace xpipe::tests
