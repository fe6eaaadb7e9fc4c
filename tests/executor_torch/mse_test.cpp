// The mean square as a loss: one definition of a mini-batch's gradient, however it is cut and
// however many mini-batches make a step, with the numbers of field cases C3 and C4.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/torch/evaluate.h"
#include "executor/torch/loss.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

constexpr double kRate = 0.25;

std::vector<nn::Layer> one_number(double weight) {
  torch::nn::Linear linear(torch::nn::LinearOptions(1, 1).bias(false));
  linear->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  linear->weight.fill_(weight);
  return {{.name = "w", .module = torch::nn::Sequential(linear), .output_size = 1}};
}

/// x = 1 eight times, t = 0 but for the last, 8; `times` over.
nn::Samples eight_samples(std::uint32_t times) {
  nn::Samples samples;
  samples.inputs = torch::ones({8L * times, 1}, torch::kFloat64);
  samples.labels = torch::zeros({8L * times}, torch::kFloat64);
  for (std::int64_t i = 7; i < samples.labels.size(0); i += 8) {
    samples.labels[i] = 8.0;
  }
  return samples;
}

struct Step {
  double loss = 0.0;
  double gradient_norm = 0.0;
  double first = 0.0;  ///< w1 and w2 afterwards
  double second = 0.0;
};

/// One step of y = w2 w1 x with w = 1, 0 in two stages, from `accumulate` mini-batches of 8.
Step one_step(std::uint32_t micro_batches,
              std::uint32_t accumulate,
              nn::LossReduction reduction = nn::LossReduction::Mean) {
  scheduler::Passes passes;
  passes.accumulate = accumulate;
  passes.clip_norm = 1e9;  // bites nobody; the norm is recorded
  ToyRun toy{compiled("gpipe", 2, micro_batches, accumulate, {}, passes), eight_samples(accumulate),
             nullptr};
  ToyTraining training;
  training.segments = 1;
  training.mini_batches.assign(accumulate, 8);
  toy.run = std::make_unique<nn::TrainingRun>(
      std::vector<std::vector<nn::Layer>>{one_number(1.0), one_number(0.0)}, toy.samples,
      nn::RunOptions{.optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = kRate},
                     .clip_norm = 1e9,
                     .loss = nn::LossKind::MeanSquare,
                     .loss_reduction = reduction});
  const ir::Status status = run_segment(toy, training, 0, toy.run->handlers(), On::Cpu);
  REQUIRE_MESSAGE(status.ok(), status.error().to_string());
  const nn::MiniBatchRecord record = toy.run->take_records().back();
  REQUIRE(record.gradient_norm.has_value());
  CHECK(record.accuracy == 0.0);  // there are no classes
  return {record.loss, *record.gradient_norm, toy.run->stages()[0].weights()[0].item<double>(),
          toy.run->stages()[1].weights()[0].item<double>()};
}

TEST_CASE("mse: the mean over a mini-batch does not depend on T (C3)") {
  for (const std::uint32_t micro_batches : {1U, 2U, 3U, 4U, 8U}) {
    CAPTURE(micro_batches);
    const Step step = one_step(micro_batches, 1);
    CHECK(step.loss == doctest::Approx(8.0).epsilon(1e-12));
    CHECK(step.second == doctest::Approx(0.5).epsilon(1e-12));  // its gradient is -2
    CHECK(step.first == 1.0);                                   // of w1: 0, as w2 is 0
  }
}

TEST_CASE("mse: the gradient's norm depends neither on T nor on accumulation (C4)") {
  for (const std::uint32_t micro_batches : {1U, 2U, 4U, 8U}) {
    for (const std::uint32_t accumulate : {1U, 2U}) {
      CAPTURE(micro_batches);
      CAPTURE(accumulate);
      const Step step = one_step(micro_batches, accumulate);
      CHECK(step.gradient_norm == doctest::Approx(2.0).epsilon(1e-12));
      CHECK(step.second == doctest::Approx(0.5).epsilon(1e-12));
    }
  }
}

TEST_CASE("mse: the sum's gradient is eight times the mean's, its record the same") {
  for (const std::uint32_t micro_batches : {1U, 3U, 8U}) {
    CAPTURE(micro_batches);
    const Step step = one_step(micro_batches, 1, nn::LossReduction::Sum);
    CHECK(step.loss == doctest::Approx(8.0).epsilon(1e-12));
    CHECK(step.gradient_norm == doctest::Approx(16.0).epsilon(1e-12));
    CHECK(step.second == doctest::Approx(16.0 * kRate).epsilon(1e-12));
  }
}

TEST_CASE("mse: a class is 1 at its place and 0 elsewhere, in images and in text") {
  const torch::Tensor output = torch::randn({6, 5}, torch::kFloat64);
  const torch::Tensor labels = torch::tensor({0, 4, 2, 2, 1, 3}, torch::kInt64);
  torch::Tensor target = torch::zeros({6, 5}, torch::kFloat64);
  for (std::int64_t i = 0; i < 6; ++i) {
    target[i][labels[i].item<std::int64_t>()] = 1.0;
  }
  const double expected = (output - target).square().mean().item<double>();
  const auto loss = [](const torch::Tensor& scores, const torch::Tensor& classes) {
    return nn::mean_loss(nn::LossKind::MeanSquare, scores, classes).item<double>();
  };
  CHECK(loss(output, labels) == doctest::Approx(expected).epsilon(1e-12));
  CHECK(loss(output.view({2, 3, 5}), labels.view({2, 3})) ==
        doctest::Approx(expected).epsilon(1e-12));
  // An evaluation weighs batches of other sizes by their samples.
  nn::EvaluationSums sums;
  nn::add_batch(sums, output.slice(0, 0, 4), labels.slice(0, 0, 4), nn::LossKind::MeanSquare);
  nn::add_batch(sums, output.slice(0, 4), labels.slice(0, 4), nn::LossKind::MeanSquare);
  CHECK(nn::mean_of(sums).loss == doctest::Approx(expected).epsilon(1e-12));
}

}  // namespace
}  // namespace xpipe::tests
