// One definition of a mini-batch's gradient, the mean (or sum) over its samples, however it is cut:
// field cases C1 to C5.
#include <cmath>
#include <string>
#include <vector>

#include "executor/torch/intra_op_threads.h"
#include "executor/torch/stage.h"
#include "tests/executor_torch/small_training.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

/// The first stage's gradients of one mini-batch of the toy net, cut into `sizes`.
std::vector<torch::Tensor> gradients(const std::vector<std::uint32_t>& sizes,
                                     nn::LossReduction reduction) {
  std::uint32_t total = 0;
  for (const std::uint32_t size : sizes) {
    total += size;
  }
  ToyTraining training;
  training.dtype = torch::kFloat64;
  training.mini_batches = {total};
  training.optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = 1.0};
  nn::RunOptions options;
  options.loss_reduction = reduction;
  const auto toy =
      toy_run(compiled("gpipe", 2, static_cast<std::uint32_t>(sizes.size()), 1), training, options);
  const std::vector<torch::Tensor> before = weights_of(*toy->run);
  const ir::Status status = run_segment(*toy, training, 0, toy->run->handlers(), On::Inline);
  REQUIRE_MESSAGE(status.ok(), status.error().to_string());
  std::vector<torch::Tensor> steps = weights_of(*toy->run);
  for (std::size_t p = 0; p < steps.size(); ++p) {
    steps[p] = before[p] - steps[p];  // plain SGD at rate 1: the gradient
  }
  return steps;
}

/// By autograd, on the whole mini-batch at once.
std::vector<torch::Tensor> whole_gradients(std::uint32_t samples, nn::LossReduction reduction) {
  const nn::Samples data = toy_samples(samples, torch::kFloat64);
  const nn::Model model = toy_model(7, torch::kFloat64);
  torch::Tensor x = data.inputs;
  for (const nn::Layer& layer : model.layers) {
    torch::nn::Sequential module = layer.module;
    x = module->forward(x);
  }
  const auto option = torch::nn::functional::CrossEntropyFuncOptions();
  (reduction == nn::LossReduction::Sum
       ? torch::nn::functional::cross_entropy(
             x, data.labels,
             torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum))
       : torch::nn::functional::cross_entropy(x, data.labels, option))
      .backward();
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& parameter : nn::parameters_of(model.layers)) {
    all.push_back(parameter.grad());
  }
  return all;
}

TEST_CASE("the gradient of a mini-batch does not depend on how it is cut (C3, C4)") {
  const std::vector<std::vector<std::uint32_t>> cuts{
      {8}, {4, 4}, {3, 3, 2}, {2, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1}};
  for (const nn::LossReduction reduction : {nn::LossReduction::Mean, nn::LossReduction::Sum}) {
    const std::vector<torch::Tensor> expected = whole_gradients(8, reduction);
    for (const std::vector<std::uint32_t>& sizes : cuts) {
      CAPTURE(sizes.size());
      CHECK(largest_difference(gradients(sizes, reduction), expected) < 1e-12);
    }
  }
  // A mean of means would weigh the samples of 3, 3, 2 unlike each other.
  const std::vector<torch::Tensor> mean = gradients({8}, nn::LossReduction::Mean);
  const std::vector<torch::Tensor> sum = gradients({8}, nn::LossReduction::Sum);
  CHECK(largest_difference(mean, sum) > 1e-3);
}

nn::TrainConfig plain_config(std::uint32_t micro_batches, std::uint32_t stages) {
  nn::TrainConfig config = small_config("gpipe", stages);
  config.micro_batches = micro_batches;
  config.epochs = 1;
  config.optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = 0.05};
  return config;
}

std::vector<nn::MiniBatchRecord> records(const nn::TrainConfig& config, std::uint32_t samples) {
  // Without dropout and batch norm, whose numbers depend on the micro-batches.
  const ir::Result<nn::TrainResult> result = train_small("gpipe", config, {}, samples, false);
  REQUIRE_MESSAGE(result.ok(), result.error().to_string());
  return result.value().mini_batches;
}

TEST_CASE("batches that micro-batches do not divide train, and equal one micro-batch (C1)") {
  for (const auto& [samples, micro_batches] : {std::pair{24U, 3U}, std::pair{62U, 4U}}) {
    CAPTURE(samples);
    const std::vector<nn::MiniBatchRecord> cut = records(plain_config(micro_batches, 4), samples);
    const std::vector<nn::MiniBatchRecord> whole = records(plain_config(1, 4), samples);
    REQUIRE(cut.size() == (samples == 24 ? 3 : 8));
    REQUIRE(whole.size() == cut.size());
    for (std::size_t i = 0; i < cut.size(); ++i) {
      CHECK(std::abs(cut[i].loss - whole[i].loss) < 1e-12);
      CHECK(cut[i].samples == (samples == 62 && i == 7 ? 6 : 8));
    }
  }
}

TEST_CASE("a last mini-batch of fewer samples than T is trained, or left out (C2)") {
  nn::TrainConfig config = plain_config(4, 2);
  const std::vector<nn::MiniBatchRecord> kept = records(config, 9);
  REQUIRE(kept.size() == 2);
  CHECK(kept[1].samples == 1);
  CHECK(kept[1].mini_batch == 1);
  CHECK(kept[1].ended > kept[0].ended);
  const std::vector<nn::MiniBatchRecord> whole = records(plain_config(1, 2), 9);
  CHECK(std::abs(kept[1].loss - whole[1].loss) < 1e-12);
  config.recipe.last_batch = nn::LastBatch::Drop;
  CHECK(records(config, 9).size() == 1);
}

TEST_CASE("batch norm: running statistics move once a micro-batch, in order (C5)") {
  nn::Layer layer{.name = "norm", .module = torch::nn::Sequential(torch::nn::BatchNorm1d(1))};
  layer.module->to(torch::kFloat64);
  nn::Stage stage({layer}, false, {});
  for (std::uint32_t j = 0; j < 2; ++j) {  // values 0, 0 and 4, 4
    const torch::Tensor input = torch::full({2, 1}, 4.0 * j, torch::kFloat64);
    REQUIRE(stage.forward(ir::MicroBatch{j}, input, {}).ok());
  }
  double mean = 0.0;
  double variance = 0.0;
  for (const auto& buffer : layer.module->named_buffers()) {
    if (buffer.key() == "0.running_mean") {
      mean = buffer.value().item<double>();
    } else if (buffer.key() == "0.running_var") {
      variance = buffer.value().item<double>();
    }
  }
  CHECK(mean == doctest::Approx(0.4));
  CHECK(variance == doctest::Approx(0.81));
}

}  // namespace
}  // namespace xpipe::tests
