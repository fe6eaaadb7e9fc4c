// Predictions of weights: methods.md 1.4 and P13 to P15.
#include "executor/torch/stage_optimizer.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

using nn::OptimizerConfig;
using nn::OptimizerKind;
using nn::PredictionForm;
using nn::StageOptimizer;

const std::vector<OptimizerConfig> kConfigs{
    {.kind = OptimizerKind::Sgd, .learning_rate = 0.1},
    {.kind = OptimizerKind::Sgd, .learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01},
    {.kind = OptimizerKind::Adam, .learning_rate = 0.01, .weight_decay = 0.01},
    {.kind = OptimizerKind::AdamW, .learning_rate = 0.01, .weight_decay = 0.1},
    {.kind = OptimizerKind::RmsProp, .learning_rate = 0.01},
    {.kind = OptimizerKind::RmsProp, .learning_rate = 0.01, .momentum = 0.5},
};

const std::vector<PredictionForm> kForms{
    {},
    {.bias = nn::BiasCorrection::Literal},
    {.extrapolation = nn::Extrapolation::SmoothedGradient},
};

torch::Tensor numbers(std::vector<double> values) {
  return torch::tensor(values, torch::kFloat64);
}

/// One parameter with an optimizer and a slot.
struct Bench {
  Bench(const OptimizerConfig& config, const PredictionForm& form)
      : weight(numbers({1.0, -2.0, 0.5})),
        slot(torch::zeros_like(weight)),
        optimizer(config, form, true, {weight}) {}

  void step(const torch::Tensor& gradient) { optimizer.step({gradient.clone()}); }

  torch::Tensor predict(ir::Distance distance) {
    optimizer.predict(distance, {slot});
    return slot.clone();
  }

  torch::Tensor weight;
  torch::Tensor slot;
  StageOptimizer optimizer;
};

TEST_CASE("a prediction before the first step, or 0 steps ahead, is the identity (P13)") {
  for (const OptimizerConfig& config : kConfigs) {
    for (const PredictionForm& form : kForms) {
      CAPTURE(nn::optimizer_name(config.kind));
      Bench bench(config, form);
      CHECK(torch::equal(bench.predict(3), bench.weight));
      bench.step(numbers({0.3, -0.2, 0.1}));
      CHECK(torch::equal(bench.predict(0), bench.weight));
      CHECK_FALSE(torch::equal(bench.predict(3), bench.weight));
    }
  }
}

TEST_CASE("a prediction alters no weights, moments or step count (P14)") {
  for (const OptimizerConfig& config : kConfigs) {
    for (const PredictionForm& form : kForms) {
      Bench predicting(config, form);
      Bench plain(config, form);
      for (int t = 0; t < 5; ++t) {
        const torch::Tensor gradient = numbers({0.3, -0.2 * t, 0.1 + t});
        predicting.step(gradient);
        plain.step(gradient);
        predicting.predict(2);
        predicting.predict(7);
        CHECK(torch::equal(predicting.weight, plain.weight));
        CHECK(same_bits(predicting.optimizer.state(), plain.optimizer.state()));
        CHECK(predicting.optimizer.steps() == plain.optimizer.steps());
      }
    }
  }
}

TEST_CASE("a step is LibTorch's, whatever the prediction keeps (P14)") {
  for (const OptimizerConfig& config : kConfigs) {
    for (const PredictionForm& form : kForms) {
      Bench bench(config, form);
      torch::Tensor leaf = bench.weight.clone().requires_grad_(true);
      std::unique_ptr<torch::optim::Optimizer> plain;
      switch (config.kind) {
        case OptimizerKind::Sgd:
          plain = std::make_unique<torch::optim::SGD>(std::vector<torch::Tensor>{leaf},
                                                      torch::optim::SGDOptions(config.learning_rate)
                                                          .momentum(config.momentum)
                                                          .weight_decay(config.weight_decay));
          break;
        case OptimizerKind::Adam:
          plain = std::make_unique<torch::optim::Adam>(
              std::vector<torch::Tensor>{leaf},
              torch::optim::AdamOptions(config.learning_rate).weight_decay(config.weight_decay));
          break;
        case OptimizerKind::AdamW:
          plain = std::make_unique<torch::optim::AdamW>(
              std::vector<torch::Tensor>{leaf},
              torch::optim::AdamWOptions(config.learning_rate).weight_decay(config.weight_decay));
          break;
        case OptimizerKind::RmsProp:
          plain = std::make_unique<torch::optim::RMSprop>(
              std::vector<torch::Tensor>{leaf},
              torch::optim::RMSpropOptions(config.learning_rate).momentum(config.momentum));
          break;
      }
      for (int t = 0; t < 5; ++t) {
        const torch::Tensor gradient = numbers({0.3, -0.2 * t, 0.1 + t});
        bench.step(gradient);
        leaf.mutable_grad() = gradient.clone();
        plain->step();
        CHECK(torch::equal(bench.weight, leaf.detach()));
      }
    }
  }
}

TEST_CASE("adam: under a constant gradient the prediction is the weights s steps later (P15)") {
  const OptimizerConfig config{.kind = OptimizerKind::Adam, .learning_rate = 0.01};
  for (const int history : {1, 2, 10, 50}) {
    for (const ir::Distance distance : {1, 2, 5}) {
      Bench bench(config, {});
      const torch::Tensor gradient = numbers({0.3, -0.2, 0.1});
      for (int t = 0; t < history; ++t) {
        bench.step(gradient);
      }
      const torch::Tensor predicted = bench.predict(distance);
      for (int t = 0; t < distance; ++t) {
        bench.step(gradient);
      }
      CHECK((predicted - bench.weight).abs().max().item<double>() < 1e-12);
    }
  }
}

TEST_CASE("sgd: with the momentum buffer at its fixed point the prediction is exact (P15)") {
  Bench bench({.kind = OptimizerKind::Sgd, .learning_rate = 0.1, .momentum = 0.5}, {});
  const torch::Tensor gradient = numbers({0.3, -0.2, 0.1});
  for (int t = 0; t < 80; ++t) {
    bench.step(gradient);
  }
  const torch::Tensor predicted = bench.predict(3);
  for (int t = 0; t < 3; ++t) {
    bench.step(gradient);
  }
  CHECK((predicted - bench.weight).abs().max().item<double>() < 1e-12);
}

TEST_CASE("adam: the literal form goes the table's share of the step (methods.md 1.4)") {
  // reference/numbers/adam_literal_ratio.csv, for a constant gradient and (0.9, 0.999)
  const std::vector<std::pair<int, double>> table{
      {1, 1.0000},    {2, 1.3438},    {5, 1.8332},    {10, 2.0643},  {20, 1.9736},
      {50, 1.4242},   {100, 1.0248},  {200, 0.7426},  {500, 0.5040}, {1000, 0.3977},
      {2000, 0.3400}, {5000, 0.3173}, {10000, 0.3162}};
  OptimizerConfig config{.kind = OptimizerKind::Adam, .learning_rate = 1e-3};
  config.eps = 1e-16;  // the table has none
  Bench standard(config, {});
  Bench literal(config, {.bias = nn::BiasCorrection::Literal});
  int steps = 0;
  for (const auto& [t, ratio] : table) {
    for (; steps < t; ++steps) {
      standard.step(numbers({0.3, -0.2, 0.1}));
      literal.step(numbers({0.3, -0.2, 0.1}));
    }
    const torch::Tensor measured =
        (literal.predict(1) - literal.weight) / (standard.predict(1) - standard.weight);
    CAPTURE(t);
    CHECK((measured - ratio).abs().max().item<double>() < 6e-5);
  }
}

TEST_CASE("predictions by hand: one optimizer a line") {
  const double g1 = 0.5;
  const double g2 = -0.25;
  const double w = 2.0;

  struct Case {
    std::string name;
    OptimizerConfig config;
    PredictionForm form;
    double direction;  ///< dW after the two gradients
  };

  const double b1 = 0.9;
  const double b2 = 0.999;
  const double m = (1 - b1) * (b1 * g1 + g2);
  const double v = (1 - b2) * (b2 * g1 * g1 + g2 * g2);
  const double m_hat = m / (1 - b1 * b1);
  const double v_hat = v / (1 - b2 * b2);
  const double average = 0.01 * (0.99 * g1 * g1 + g2 * g2);
  const double smooth = (1 - 0.8) * (0.8 * g1 + g2);
  const PredictionForm smoothed{.extrapolation = nn::Extrapolation::SmoothedGradient, .gamma = 0.8};
  const std::vector<Case> cases{
      {"sgd: the last gradient", {.kind = OptimizerKind::Sgd, .learning_rate = 0.1}, {}, g2},
      {"sgd momentum: the buffer",
       {.kind = OptimizerKind::Sgd, .learning_rate = 0.1, .momentum = 0.9},
       {},
       0.9 * g1 + g2},
      {"adam",
       {.kind = OptimizerKind::Adam, .learning_rate = 0.1},
       {},
       m_hat / (std::sqrt(v_hat) + 1e-8)},
      {"adam literal",
       {.kind = OptimizerKind::Adam, .learning_rate = 0.1},
       {.bias = nn::BiasCorrection::Literal},
       m / (1 - b1) / (std::sqrt(v / (1 - b2)) + 1e-8)},
      {"rmsprop: the last gradient",
       {.kind = OptimizerKind::RmsProp, .learning_rate = 0.1},
       {},
       g2 / (std::sqrt(average) + 1e-8)},
      {"smoothed, sgd without momentum: own average",
       {.kind = OptimizerKind::Sgd, .learning_rate = 0.1},
       smoothed,
       smooth},
      {"smoothed, sgd with momentum: the buffer",
       {.kind = OptimizerKind::Sgd, .learning_rate = 0.1, .momentum = 0.9},
       smoothed,
       0.9 * g1 + g2},
      {"smoothed, adam: own average",
       {.kind = OptimizerKind::Adam, .learning_rate = 0.1},
       smoothed,
       smooth},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const torch::Tensor weight = numbers({w});
    const torch::Tensor slot = numbers({0.0});
    StageOptimizer optimizer(c.config, c.form, true, {weight});
    optimizer.step({numbers({g1})});
    optimizer.step({numbers({g2})});
    optimizer.predict(3, {slot});
    CHECK(slot.item<double>() ==
          doctest::Approx(weight.item<double>() - 3 * 0.1 * c.direction).epsilon(1e-12));
  }
}

/// methods.md 1.4 in LibTorch's operations on `weight`'s type, one after the other.
torch::Tensor adam_in_operations(const torch::Tensor& weight,
                                 const std::vector<torch::Tensor>& moments,
                                 const OptimizerConfig& o,
                                 int steps,
                                 int distance) {
  const torch::Tensor m_hat = moments[0] / (1 - std::pow(o.beta1, steps));
  const torch::Tensor v_hat = moments[1] / (1 - std::pow(o.beta2, steps));
  const double decay = o.kind == OptimizerKind::AdamW ? o.weight_decay : 0.0;
  return weight - distance * o.learning_rate * (m_hat / (v_hat.sqrt() + o.eps) + decay * weight);
}

TEST_CASE("adam, adamw: the fused prediction is LibTorch's operations, to rounding, in any slot") {
  for (const OptimizerConfig& config : kConfigs) {
    if (config.kind != OptimizerKind::Adam && config.kind != OptimizerKind::AdamW) {
      continue;
    }
    torch::manual_seed(5);
    const torch::Tensor weight = torch::randn({37, 41});
    StageOptimizer optimizer(config, {}, true, {weight});
    for (int t = 0; t < 4; ++t) {
      optimizer.step({torch::randn({37, 41})});
    }
    const torch::Tensor expected = adam_in_operations(weight, optimizer.state(), config, 4, 3);
    for (const torch::Dtype type : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
      const torch::Tensor slot = torch::zeros({37, 41}, type);
      optimizer.predict(3, {slot});
      const torch::Tensor exact = slot.to(torch::kFloat32);
      // A prediction may be one rounding of its slot's type beside the other's, never two.
      const double last_place = type == torch::kFloat32    ? 1e-6
                                : type == torch::kBFloat16 ? 8e-3
                                                           : 1e-3;
      const torch::Tensor error = (exact - expected).abs() / expected.abs().clamp_min(1e-2);
      CHECK(error.max().item<double>() < last_place);
      CHECK_FALSE(torch::equal(exact, weight));
    }
  }
}

TEST_CASE("one prediction fills slots of several types, empty ones included") {
  const torch::Tensor a = torch::randn({300});
  const torch::Tensor b = torch::randn({5});
  const torch::Tensor none = torch::randn({0});
  StageOptimizer optimizer({.kind = OptimizerKind::Sgd, .learning_rate = 0.5}, {}, true,
                           {a, none, b});
  optimizer.step({torch::ones({300}), torch::ones({0}), torch::ones({5})});
  const std::vector<torch::Tensor> slots{torch::zeros({300}, torch::kBFloat16), torch::zeros({0}),
                                         torch::zeros({5})};
  optimizer.predict(2, slots);
  CHECK(torch::equal(slots[0], (a - 1.0).to(torch::kBFloat16)));
  CHECK(torch::equal(slots[2], b - 1.0));
}

TEST_CASE("adamw: the prediction goes on with the decay of the weights") {
  const OptimizerConfig config{
      .kind = OptimizerKind::AdamW, .learning_rate = 0.1, .weight_decay = 0.25};
  OptimizerConfig without = config;
  without.weight_decay = 0.0;
  Bench bench(config, {});
  Bench undecayed(without, {});
  bench.step(numbers({0.3, -0.2, 0.1}));
  undecayed.step(numbers({0.3, -0.2, 0.1}));
  const torch::Tensor expected =
      undecayed.predict(2) - undecayed.weight + bench.weight * (1 - 2 * 0.1 * 0.25);
  CHECK((bench.predict(2) - expected).abs().max().item<double>() < 1e-15);
}

TEST_CASE("a parameter without a gradient stays, and is predicted to stay") {
  for (const OptimizerConfig& config : kConfigs) {
    Bench bench(config, {});
    const torch::Tensor before = bench.weight.clone();
    bench.optimizer.step({torch::Tensor()});
    CHECK(torch::equal(bench.weight, before));
    CHECK(torch::equal(bench.predict(2), before));
  }
}

TEST_CASE("history for predictions is kept only where something predicts") {
  const OptimizerConfig config{.kind = OptimizerKind::Sgd, .learning_rate = 0.1};
  for (const bool predicts : {false, true}) {
    StageOptimizer optimizer(config, {}, predicts, {numbers({1.0, 2.0})});
    optimizer.step({numbers({0.1, 0.2})});
    CHECK(optimizer.state_bytes() == (predicts ? 16 : 0));
  }
}

}  // namespace
}  // namespace xpipe::tests
