// The decoder-only transformer: sizes in closed form, attention against the formula, weights of
// different versions, tied weights, and training that no cut changes.
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "executor/torch/dataset.h"
#include "executor/torch/model_options.h"
#include "executor/torch/ties.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"
#include "tests/executor_torch/train_model.h"

namespace xpipe::tests {
namespace {

constexpr std::int64_t kVocabulary = 11;
constexpr std::int64_t kSequence = 6;

nn::Model small_gpt(const std::string& tie = "false", const std::string& dropout = "0") {
  ir::Result<nn::Model> model = nn::build_model("gpt",
                                                {{"layers", "2"},
                                                 {"width", "8"},
                                                 {"heads", "2"},
                                                 {"sequence", std::to_string(kSequence)},
                                                 {"tie", tie},
                                                 {"dropout", dropout}},
                                                {.sequence = kSequence}, kVocabulary, 3);
  REQUIRE_MESSAGE(model.ok(), model.error().to_string());
  return std::move(model.value());
}

/// Tokens with the next ones as labels.
nn::Samples tokens(std::int64_t count) {
  nn::Samples samples;
  const torch::Tensor text =
      (torch::arange(count * kSequence + 1, torch::kInt64) * 7 + 3).square().remainder(kVocabulary);
  samples.inputs = text.slice(0, 0, count * kSequence).reshape({count, kSequence}).contiguous();
  samples.labels = text.slice(0, 1).reshape({count, kSequence}).contiguous();
  return samples;
}

TEST_CASE("gpt: the defaults with 1000 tokens are the workload W2: ten units and their sizes") {
  const auto model = nn::build_model("gpt", {}, {.sequence = 128}, 1000, 1);
  REQUIRE_MESSAGE(model.ok(), model.error().to_string());
  CHECK(model.value().layers.size() == 10);
  CHECK(model.value().layers.front().name == "embedding");
  CHECK(model.value().layers.back().name == "head");
  // PyTorch's count of the units in runtime_peers.py.
  CHECK(nn::parameter_count(model.value()) == 6864360);
  CHECK(nn::parameter_count(model.value().layers[3]) == 12 * 256 * 256 + 13 * 256);
}

TEST_CASE("gpt: parameters in closed form, a tied weight counted once") {
  // Embedding (V + S) w; block 12 w^2 + 13 w; head 2 w + V w + V, tied 2 w more than the embedding.
  for (const std::int64_t layers : {1, 3}) {
    for (const std::int64_t width : {8, 24}) {
      const auto count = [&](const char* tie) {
        return nn::parameter_count(nn::build_model("gpt",
                                                   {{"layers", std::to_string(layers)},
                                                    {"width", std::to_string(width)},
                                                    {"sequence", "5"},
                                                    {"tie", tie}},
                                                   {.sequence = 5}, 13, 1)
                                       .value());
      };
      const std::int64_t common =
          (13 + 5) * width + layers * (12 * width * width + 13 * width) + 2 * width;
      CHECK(count("true") == common);
      CHECK(count("false") == common + 13 * width + 13);
    }
  }
}

TEST_CASE("gpt: every layer's output is as large as it says, and no token sees a later one") {
  const nn::Model model = small_gpt();
  const torch::NoGradGuard no_grad;
  torch::Tensor x = tokens(3).inputs;
  for (const nn::Layer& layer : model.layers) {
    torch::nn::Sequential module = layer.module;
    x = module->forward(x);
    CHECK(x.numel() == 3 * layer.output_size);
  }
  CHECK(x.sizes() == torch::IntArrayRef({3, kSequence, kVocabulary}));
  torch::Tensor changed = tokens(3).inputs.clone();
  changed.select(1, 4).add_(1).remainder_(kVocabulary);
  const torch::Tensor y = forward_through(model, changed);
  CHECK(torch::allclose(y.slice(1, 0, 4), x.slice(1, 0, 4)));
  CHECK_FALSE(torch::allclose(y.select(1, 4), x.select(1, 4)));
  CHECK_FALSE(torch::allclose(y.select(1, 5), x.select(1, 5)));
}

TEST_CASE("gpt: a block is what the formula says") {
  nn::Model model = small_gpt();
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::randn({2, kSequence, 8});
  auto own = model.layers[1].module->named_parameters();
  const auto of = [&own](const char* name) { return own["0." + std::string(name)]; };
  for (auto& parameter : own) {
    parameter.value().add_(torch::randn_like(parameter.value()) * 0.3);  // norms and biases, too
  }
  const auto norm = [&](const torch::Tensor& v, const char* weight, const char* bias) {
    const torch::Tensor centred = v - v.mean(-1, true);
    const torch::Tensor deviation = (centred.square().mean(-1, true) + 1e-5).sqrt();
    return centred / deviation * of(weight) + of(bias);
  };
  const torch::Tensor qkv =
      norm(x, "norm_1.weight", "norm_1.bias").matmul(of("qkv.weight").t()) + of("qkv.bias");
  std::vector<torch::Tensor> heads;
  for (std::int64_t h = 0; h < 2; ++h) {
    const auto part = [&](std::int64_t which) {
      return qkv.slice(2, which * 8 + h * 4, which * 8 + h * 4 + 4);
    };
    torch::Tensor scores = part(0).matmul(part(1).transpose(1, 2)) / std::sqrt(4.0);
    scores = scores.masked_fill(torch::ones({kSequence, kSequence}).triu(1).to(torch::kBool),
                                -std::numeric_limits<float>::infinity());
    heads.push_back(scores.softmax(-1).matmul(part(2)));
  }
  const torch::Tensor middle =
      x + torch::cat(heads, 2).matmul(of("proj.weight").t()) + of("proj.bias");
  torch::Tensor wide =
      norm(middle, "norm_2.weight", "norm_2.bias").matmul(of("up.weight").t()) + of("up.bias");
  wide = 0.5 * wide * (1 + torch::erf(wide / std::sqrt(2.0)));
  const torch::Tensor expected = middle + wide.matmul(of("down.weight").t()) + of("down.bias");
  CHECK(torch::allclose(model.layers[1].module->forward(x), expected, 1e-4, 1e-5));
}

TEST_CASE("gpt: forward on one version and backward on another give the in-place method's bits") {
  for (const char* tie : {"false", "true"}) {
    CAPTURE(tie);
    const nn::Model model = small_gpt(tie, "0.1");
    std::vector<torch::Tensor> other;
    for (const torch::Tensor& leaf : nn::parameters_of(model.layers)) {
      other.push_back(torch::randn_like(leaf));
    }
    const torch::Tensor input = tokens(3).inputs;
    const auto swapped = gradients_in_place(model, input, other);
    CHECK(same_bits(gradients_by_hooks(model, input, other), swapped));
    std::vector<torch::Tensor> same;
    for (const torch::Tensor& leaf : nn::parameters_of(model.layers)) {
      same.push_back(leaf.detach().clone());
    }
    CHECK_FALSE(same_bits(gradients_in_place(model, input, same), swapped));
  }
}

TEST_CASE("ties: one tensor within a stage, one a stage across them, and their gradients add up") {
  const nn::Model whole = small_gpt("true");
  CHECK(nn::ties_across_stages(whole, {4}).empty());
  const nn::Model parted = small_gpt("true");
  const std::vector<std::uint32_t> partition{1, 2, 1};
  const auto parts = nn::cut(parted, partition);
  const auto across = nn::ties_across_stages(parted, partition);
  REQUIRE(across.size() == 1);
  const std::vector<nn::StageParameter> ends{{0, 0}, {2, 2}};
  CHECK(bool(across[0] == ends));
  const torch::Tensor of_embedding = nn::parameters_of(parts[0])[0];
  const torch::Tensor of_head = nn::parameters_of(parts[2])[2];
  CHECK_FALSE(of_embedding.is_same(of_head));
  CHECK(of_embedding.data_ptr() != of_head.data_ptr());
  CHECK(torch::equal(of_embedding, of_head));
  CHECK(of_head.requires_grad());
  const torch::Tensor input = tokens(3).inputs;
  forward_through(whole, input).square().sum().backward();
  forward_through(parted, input).square().sum().backward();
  CHECK(torch::allclose(nn::parameters_of(whole.layers)[0].grad(),
                        of_embedding.grad() + of_head.grad(), 1e-5, 1e-6));
  CHECK(nn::cut(whole, {4}).front().size() == 4);
  CHECK(nn::parameters_of(whole.layers).size() == nn::parameters_of(parted.layers).size() - 1);
}

TEST_CASE("gpt: the loss is the mean over samples and tokens, however a mini-batch is cut") {
  const nn::Samples samples = tokens(14);
  ModelTraining training{.mini_batches = {5, 5, 4}};
  training.optimizer.learning_rate = 0.01;
  std::vector<TrainedModel> trained;
  for (const auto& [partition, micro_batches] : {std::pair{std::vector<std::uint32_t>{4}, 1U},
                                                 {{4}, 3U},
                                                 {{2, 2}, 3U},
                                                 {{1, 1, 1, 1}, 4U}}) {
    training.partition = partition;
    training.micro_batches = micro_batches;
    trained.push_back(train_model(small_gpt(), samples, training));
  }
  // By plain LibTorch, a mini-batch at once.
  const nn::Model model = small_gpt();
  torch::optim::Adam adam(nn::parameters_of(model.layers), torch::optim::AdamOptions(0.01));
  std::int64_t begin = 0;
  std::size_t i = 0;
  for (const std::int64_t count : {5, 5, 4}) {
    adam.zero_grad();
    const torch::Tensor output =
        forward_through(model, samples.inputs.slice(0, begin, begin + count));
    const torch::Tensor loss = torch::nn::functional::cross_entropy(
        output.flatten(0, 1), samples.labels.slice(0, begin, begin + count).flatten());
    loss.backward();
    adam.step();
    for (const TrainedModel& one : trained) {
      CHECK(one.losses[i] == doctest::Approx(loss.item<double>()).epsilon(1e-5));
      CHECK(one.accuracies[i] >= 0.0);
      CHECK(one.accuracies[i] <= 1.0);
    }
    begin += count;
    ++i;
  }
  std::vector<torch::Tensor> expected;
  for (const torch::Tensor& leaf : nn::parameters_of(model.layers)) {
    expected.push_back(leaf.detach());
  }
  for (const TrainedModel& one : trained) {
    CHECK(largest_difference(one.weights, expected) < 2e-4);
  }
  CHECK(same_bits(trained[1].weights, trained[2].weights));
}

TEST_CASE("gpt: a tied weight within one stage trains as one tensor") {
  ModelTraining training{.partition = {4}};
  const TrainedModel trained = train_model(small_gpt("true"), tokens(12), training);
  CHECK(trained.weights.size() == nn::parameters_of(small_gpt("true").layers).size());
  CHECK(trained.losses.back() < trained.losses.front() + 1.0);
}

TEST_CASE("gpt: what it cannot be is a usage error that names the option") {
  const auto fault = [](const std::map<std::string, std::string>& options,
                        const nn::SampleShape& input) {
    const auto model = nn::build_model("gpt", options, input, kVocabulary, 1);
    return model.ok() ? std::string("ok") : model.error().to_string();
  };
  CHECK(fault({{"heads", "3"}}, {.sequence = 128}).find("3 heads for a width of 256") !=
        std::string::npos);
  CHECK(fault({{"tie", "yes"}}, {.sequence = 128}).find("true or false") != std::string::npos);
  CHECK(fault({{"dropout", "1"}}, {.sequence = 128}).find("dropout") != std::string::npos);
  CHECK(fault({}, {.sequence = 64}).find("64 tokens") != std::string::npos);
  CHECK(fault({}, {3, 32, 32}).find("takes text") != std::string::npos);
  CHECK_FALSE(nn::build_model("lenet5", {}, {.sequence = 28}, 10, 1).ok());
  CHECK(nn::sequence_of("gpt", {{"sequence", "32"}}).value() == 32);
  CHECK(nn::sequence_of("lenet5", {}).value() == 0);
}

}  // namespace
}  // namespace xpipe::tests
