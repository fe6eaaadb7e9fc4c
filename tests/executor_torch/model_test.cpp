// The built-in models: sizes that are published, outputs, first weights, and dropout.
#include "executor/torch/model.h"

#include <string>
#include <utility>
#include <vector>

#include "executor/torch/dropout.h"
#include "executor/torch/model_builder.h"
#include "executor/torch/model_names.h"
#include "executor/torch/stage.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

nn::Model built(const std::string& name, std::int64_t channels, std::int64_t side) {
  ir::Result<nn::Model> model = nn::build_model(name, {}, {channels, side, side}, 10, 1);
  REQUIRE_MESSAGE(model.ok(), model.error().to_string());
  return std::move(model.value());
}

TEST_CASE("models: layers and parameters are the known numbers, and outputs have 10 classes") {
  struct Case {
    std::string name;
    std::int64_t channels;
    std::int64_t side;
    std::size_t layers;
    std::int64_t parameters;
  };

  // lenet5: 156 + 2416 + 48120 + 10164 + 850. vgg16: 14714688 in the 13 convolutions of 3 channels
  // (PyTorch's vgg16), 2 x 262656 + 5130; with one channel 1152 fewer.
  for (const Case& c : {Case{"lenet5", 1, 28, 8, 61706}, Case{"vgg16", 3, 32, 21, 15245130},
                        Case{"vgg16", 1, 28, 21, 15243978}, Case{"mlp", 1, 28, 8, 200842}}) {
    CAPTURE(c.name);
    const nn::Model model = built(c.name, c.channels, c.side);
    CHECK(model.layers.size() == c.layers);
    CHECK(nn::parameter_count(model) == c.parameters);
    torch::Tensor x = torch::zeros({2, c.channels, c.side, c.side});
    for (const nn::Layer& layer : model.layers) {
      torch::nn::Sequential module = layer.module;
      x = module->forward(x);
      CHECK(x.numel() == 2 * layer.output_size);
    }
    CHECK(x.sizes() == torch::IntArrayRef({2, 10}));
  }
}

TEST_CASE("models: vgg16 on 32x32 is the workload of bench/: its layers and multiply-adds") {
  const nn::Model model = built("vgg16", 3, 32);
  std::string names;
  std::uint64_t macs = 0;
  for (const nn::Layer& layer : model.layers) {
    names += layer.name + " ";
    macs += layer.name.starts_with("pool") ? 0 : layer.macs;
  }
  CHECK(names ==
        "conv1 conv2 pool1 conv3 conv4 pool2 conv5 conv6 conv7 pool3 conv8 conv9 conv10 pool4 "
        "conv11 conv12 conv13 pool5 fc1 fc2 fc3 ");
  CHECK(macs == 313196544 + 2 * 512 * 512 + 512 * 10);
}

TEST_CASE("models: a layer's first weights depend on the seed and its place alone") {
  const nn::Model a = built("lenet5", 1, 28);
  const nn::Model b = built("lenet5", 1, 28);
  CHECK(same_bits(nn::parameters_of(a.layers), nn::parameters_of(b.layers)));
  torch::rand({1000});  // torch's own generator plays no part
  const nn::Model c = built("lenet5", 1, 28);
  CHECK(same_bits(nn::parameters_of(a.layers), nn::parameters_of(c.layers)));
  const ir::Result<nn::Model> d = nn::build_model("lenet5", {}, {1, 28, 28}, 10, 2);
  CHECK_FALSE(same_bits(nn::parameters_of(a.layers), nn::parameters_of(d.value().layers)));
}

TEST_CASE("models: what they cannot take is a usage error") {
  CHECK_FALSE(nn::build_model("vgg16", {}, {1, 27, 27}, 10, 1).ok());
  CHECK_FALSE(nn::build_model("lenet5", {{"depth", "3"}}, {1, 28, 28}, 10, 1).ok());
  CHECK(nn::build_model("mlp", {{"depth", "2"}}, {3, 5, 4}, 10, 1).ok());
  for (const std::string bad : {"", "-1", "x", "1.5", "70000", "3 "}) {
    CHECK_FALSE(nn::build_model("mlp", {{"hidden", bad}}, {1, 28, 28}, 10, 1).ok());
  }
  CHECK(nn::model_option_names("mlp") == std::vector<std::string>{"hidden", "depth"});
  CHECK(nn::model_option_names("vgg16").empty());
}

TEST_CASE("models: with heads for ImageNet they have as many parameters as torchvision's") {
  struct Case {
    std::string name;
    std::int64_t side;
    std::int64_t parameters;
  };

  // torchvision 0.26: sum(p.numel() for p in model.parameters()); inception_v3 with
  // aux_logits=False.
  for (const Case& c : {Case{"vgg16", 224, 138357544}, Case{"resnet50", 224, 25557032},
                        Case{"resnet101", 224, 44549160}, Case{"inception_v3", 299, 23834568}}) {
    CAPTURE(c.name);
    const auto model = nn::build_model(c.name, {}, {3, c.side, c.side}, 1000, 1);
    REQUIRE_MESSAGE(model.ok(), model.error().to_string());
    CHECK(nn::parameter_count(model.value()) == c.parameters);
  }
}

TEST_CASE("models: one network, one count: the image's size changes no convolution of a ResNet") {
  for (const char* name : {"resnet50", "resnet101"}) {
    const nn::Model small = built(name, 3, 32);
    const nn::Model larger = built(name, 3, 64);
    CHECK(nn::parameter_count(small) == nn::parameter_count(larger));
    CHECK(small.layers.size() == larger.layers.size());
  }
  CHECK(built("resnet50", 3, 32).layers.size() == 1 + 16 + 1);
  CHECK(built("resnet101", 3, 32).layers.size() == 1 + 33 + 1);
  CHECK(built("inception_v3", 3, 32).layers.size() == 5 + 11 + 1);
}

TEST_CASE("models: every layer's output is as large as it says, on all image sizes") {
  struct Case {
    std::string name;
    std::int64_t side;
  };

  for (const Case& c : {Case{"resnet50", 32}, Case{"resnet50", 64}, Case{"resnet50", 224},
                        Case{"inception_v3", 32}, Case{"inception_v3", 299}, Case{"vgg16", 64}}) {
    CAPTURE(c.name);
    CAPTURE(c.side);
    const nn::Model model = built(c.name, 3, c.side);
    const torch::NoGradGuard no_grad;
    const nn::PassScope pass({});
    torch::Tensor x = torch::zeros({1, 3, c.side, c.side});
    for (const nn::Layer& layer : model.layers) {
      CAPTURE(layer.name);
      torch::nn::Sequential module = layer.module;
      x = module->forward(x);
      CHECK(x.numel() == layer.output_size);
    }
    CHECK(x.sizes() == torch::IntArrayRef({1, 10}));
  }
}

/// Linear 16, dropout 0.5, linear 4 in three layers.
nn::Model with_dropout() {
  nn::ModelBuilder builder("dropout", {1, 4, 4}, 5);
  nn::Chain first = builder.next();
  first.linear(16, nn::Init::FanInUniform);
  builder.add("first", first);
  nn::Chain dropout = builder.next();
  dropout.dropout(0.5, builder.index());
  builder.add("dropout", dropout);
  nn::Chain last = builder.next();
  last.linear(4, nn::Init::FanInUniform);
  builder.add("last", last);
  return std::move(builder).take();
}

torch::Tensor dropped(const nn::PassKey& key, std::uint64_t layer) {
  const nn::PassScope pass(key);
  return nn::KeyedDropout(0.25, layer)->forward(torch::ones({100, 100}));
}

TEST_CASE(
    "dropout: the mask is told by seed, mini-batch, micro-batch and layer, and by nothing else") {
  const nn::PassKey key{.seed = 1, .mini_batch = 2, .micro_batch = 3};
  const torch::Tensor mask = dropped(key, 4);
  torch::rand({7});  // torch's own generator plays no part
  CHECK(torch::equal(dropped(key, 4), mask));
  CHECK_FALSE(torch::equal(dropped({.seed = 9, .mini_batch = 2, .micro_batch = 3}, 4), mask));
  CHECK_FALSE(torch::equal(dropped({.seed = 1, .mini_batch = 9, .micro_batch = 3}, 4), mask));
  CHECK_FALSE(torch::equal(dropped({.seed = 1, .mini_batch = 2, .micro_batch = 9}, 4), mask));
  CHECK_FALSE(torch::equal(dropped(key, 9), mask));
  // A quarter is zero, the rest 4/3; five deviations of 10,000 draws.
  CHECK(mask.eq(0).sum().item<double>() == doctest::Approx(2500).epsilon(0.09));
  CHECK(mask.max().item<double>() == doctest::Approx(4.0 / 3.0));
}

TEST_CASE("dropout: neither the cut of the model nor an evaluation in between changes the masks") {
  const nn::StageOptions options{.optimizer = {}, .prediction = {}, .predicts = false, .seed = 11};
  const torch::Tensor input = torch::rand({6, 1, 4, 4});
  const auto outputs = [&](const std::vector<std::uint32_t>& partition) {
    std::vector<nn::Stage> stages;
    for (std::vector<nn::Layer>& part : nn::cut(with_dropout(), partition)) {
      stages.emplace_back(std::move(part), !stages.empty(), options);
      stages.back().begin_segment(1, {.mini_batch = 2, .micro_batches = 2});
    }
    std::vector<torch::Tensor> all;
    for (std::uint32_t j = 0; j < 3; ++j) {
      torch::Tensor x = input;
      torch::Tensor evaluated = input;
      for (nn::Stage& stage : stages) {
        x = stage.forward(ir::MicroBatch{j}, x, {}).value();
        evaluated = stage.evaluate(evaluated);
      }
      all.push_back(x);
      all.push_back(evaluated);
    }
    return all;
  };
  const std::vector<torch::Tensor> whole = outputs({3});
  CHECK(same_bits(outputs({1, 2}), whole));
  CHECK(same_bits(outputs({1, 1, 1}), whole));
  CHECK_FALSE(torch::equal(whole[0], whole[2]));  // another micro-batch, another mask
  CHECK(torch::equal(whole[1], whole[3]));        // none in evaluations
}

TEST_CASE("dropout: a training forward outside of a pass is refused, not random") {
  CHECK_THROWS_AS(nn::KeyedDropout(0.5, 0)->forward(torch::ones({2})), c10::Error);
}

TEST_CASE(
    "evaluation: a batch norm uses its running statistics, and training goes on with its own") {
  nn::ModelBuilder builder("norm", {1, 2, 2}, 1);
  nn::Chain chain = builder.next();
  chain.conv_batch_norm(nn::square(1, 1), nn::Init::FanOutNormal, 1e-5, false);
  builder.add("norm", chain);
  nn::Stage stage(std::move(builder).take().layers, false, {});
  const torch::Tensor input = torch::rand({8, 1, 2, 2});
  const torch::Tensor evaluated = stage.evaluate(input);
  const torch::Tensor trained = stage.forward(ir::MicroBatch{0}, input, {}).value();
  CHECK(trained.mean().item<double>() == doctest::Approx(0.0).epsilon(1e-5));
  CHECK_FALSE(torch::allclose(evaluated, trained));
  // The forward has moved the running statistics: another evaluation differs from the first.
  CHECK_FALSE(torch::equal(stage.evaluate(input), evaluated));
  CHECK(torch::allclose(stage.forward(ir::MicroBatch{1}, input, {}).value(), trained));
}

}  // namespace
}  // namespace xpipe::tests
