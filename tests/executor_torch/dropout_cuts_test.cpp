// Dropout under every cut: the losses that are printed do not tell how many stages there were.
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "executor/torch/dataset.h"
#include "executor/torch/model_builder.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"
#include "tests/executor_torch/train_model.h"

namespace xpipe::tests {
namespace {

/// Four layers: linear 8 to 8, ReLU, dropout 0.2.
nn::Model four_layers() {
  nn::ModelBuilder builder("four", {8, 1, 1}, 1);
  for (int i = 0; i < 4; ++i) {
    nn::Chain chain = builder.next();
    chain.linear(8, nn::Init::FanInUniform);
    if (i < 3) {
      chain.relu();
    }
    chain.dropout(0.2, builder.index());
    builder.add("layer" + std::to_string(i), chain);
  }
  return std::move(builder).take();
}

nn::Samples noise(std::int64_t count) {
  nn::Samples samples;
  samples.inputs = torch::sin(torch::arange(count * 8).square()).reshape({count, 8, 1, 1});
  samples.labels = torch::arange(count, torch::kInt64).remainder(8);
  return samples;
}

std::string losses_text(const std::string& policy, const std::vector<std::uint32_t>& partition) {
  ModelTraining training{.partition = partition,
                         .policy = policy,
                         .micro_batches = 4,
                         .mini_batches = {8, 8, 8, 8, 8}};
  training.optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = 0.05};
  std::string text;
  for (const double loss : train_model(four_layers(), noise(40), training).losses) {
    char number[32];
    std::snprintf(number, sizeof(number), "%.6f ", loss);
    text += number;
  }
  return text;
}

TEST_CASE("dropout: five losses are the same text for 1, 2 and 4 stages") {
  const std::string expected = losses_text("gpipe", {4});
  for (const std::vector<std::uint32_t>& partition :
       {std::vector<std::uint32_t>{2, 2}, {1, 1, 1, 1}}) {
    CHECK(losses_text("gpipe", partition) == expected);
  }
  // One stage has no staleness: an asynchronous policy is the same training.
  CHECK(losses_text("xpipe", {4}) == expected);
}

}  // namespace
}  // namespace xpipe::tests
