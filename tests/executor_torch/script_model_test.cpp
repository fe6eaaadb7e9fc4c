// Models from TorchScript archives: read, checked, cut, trained and written back; those that cannot
// be trained are refused by the layer's name. With PyTorch at hand, the archives are its own.
#include "executor/torch/script_model.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/script.h>

#include "executor/torch/dataset.h"
#include "executor/torch/layer_check.h"
#include "executor/torch/own_model.h"
#include "tests/executor_torch/faults.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"
#include "tests/executor_torch/train_model.h"
#include "tests/python_with_torch.h"
#include "tests/scratch_folder.h"

namespace xpipe::tests {
namespace {

namespace fs = std::filesystem;

const std::string kSmallCnn = XPIPE_SOURCE_DIR "/examples/models/small_cnn.pt";

nn::Model loaded(const std::string& path, const nn::SampleShape& input, std::int64_t classes) {
  ir::Result<nn::Model> model = nn::load_script_model(path, input, classes);
  REQUIRE_MESSAGE(model.ok(), model.error().to_string());
  return std::move(model.value());
}

std::string fault_of(const std::string& path, const nn::SampleShape& input, std::int64_t classes) {
  const auto model = nn::load_script_model(path, input, classes);
  return model.ok() ? "ok" : model.error().to_string();
}

std::vector<torch::Tensor> copies(const nn::Model& model) {
  std::vector<torch::Tensor> weights;
  for (const torch::Tensor& weight : nn::parameters_of(model.layers)) {
    weights.push_back(weight.detach().clone());
  }
  return weights;
}

/// Numbers that PyTorch's side of the test makes, too (script_peer.py).
nn::Samples wavy_samples(std::int64_t count, std::int64_t side, std::int64_t classes) {
  const torch::Tensor numbers = torch::arange(count * side * side, torch::kFloat64);
  nn::Samples samples;
  samples.inputs =
      torch::sin(numbers * numbers * 0.37).reshape({count, 1, side, side}).to(torch::kFloat32);
  samples.labels = (torch::arange(count, torch::kInt64) * 7).remainder(classes);
  return samples;
}

TEST_CASE("archives: an nn.Sequential's children are the layers, with their names and weights") {
  const nn::Model model = loaded(kSmallCnn, {1, 28, 28}, 10);
  CHECK(model.name == "small_cnn");
  std::string names;
  for (const nn::Layer& layer : model.layers) {
    names += layer.name + " ";
  }
  CHECK(names == "first second hidden head ");
  CHECK(nn::parameter_count(model) ==
        6 * 9 + 6 + 12 + 4 * 6 * 9 + 4 + 196 * 16 + 16 + 16 * 10 + 10);
  CHECK(model.layers[0].output_size == 6 * 14 * 14);
  CHECK(model.layers[0].module->named_parameters().contains("0.0.weight"));
  CHECK(model.layers[0].module->named_buffers().contains("0.1.running_mean"));
  CHECK(model.stage_layers.empty());
  // The check runs on copies: the running statistics are those of the file.
  CHECK(model.layers[0].module->named_buffers()["0.1.running_mean"].abs().max().item<double>() ==
        0.0);
}

TEST_CASE("archives: trained the same in every cut, dropout included, and written back") {
  const nn::Samples samples = wavy_samples(16, 28, 10);
  ModelTraining training{.mini_batches = {8, 8}, .epochs = 2};
  training.partition = {4};
  const nn::Model whole = loaded(kSmallCnn, {1, 28, 28}, 10);
  const TrainedModel one = train_model(whole, samples, training);
  training.partition = {1, 2, 1};
  const nn::Model cut = loaded(kSmallCnn, {1, 28, 28}, 10);
  CHECK(same_bits(train_model(cut, samples, training).weights, one.weights));
  training.seed = 2;
  CHECK_FALSE(same_bits(train_model(loaded(kSmallCnn, {1, 28, 28}, 10), samples, training).weights,
                        one.weights));

  const ScratchFolder folder;
  REQUIRE(nn::save_script_model(cut, folder.path("trained.pt")).ok());
  const nn::Model again = loaded(folder.path("trained.pt"), {1, 28, 28}, 10);
  CHECK(same_bits(copies(again), one.weights));
  CHECK(torch::equal(again.layers[0].module->named_buffers()["0.1.running_var"],
                     cut.layers[0].module->named_buffers()["0.1.running_var"]));
  CHECK_FALSE(nn::save_script_model(cut, folder.path("none/trained.pt")).ok());
  CHECK(has(nn::save_script_model(toy_model(1, torch::kFloat32), folder.path("toy.pt"))
                .error()
                .to_string(),
            "not read from a TorchScript archive"));
}

/// An archive of an nn.Sequential of scripted layers, without Python.
class ArchiveWriter {
 public:
  void layer(const std::string& name,
             const std::vector<std::pair<std::string, torch::Tensor>>& parameters,
             const std::string& forward) {
    torch::jit::Module module("__torch__.Layer_" + name);
    for (const auto& [own, value] : parameters) {
      module.register_parameter(own, torch::Tensor(value).requires_grad_(true), false);
    }
    module.define("def forward(self, x):\n  " + forward + "\n");
    root_.register_module(name, module);
    const std::string before = "x" + std::to_string(layers_++);
    calls_ += "  x" + std::to_string(layers_) + " = self." + name + ".forward(" + before + ")\n";
  }

  void write(const std::string& file) {
    root_.define("def forward(self, x0):\n" + calls_ + "  return x" + std::to_string(layers_) +
                 "\n");
    root_.save(file);
  }

 private:
  torch::jit::Module root_{"__torch__.Sequential"};
  std::string calls_;
  int layers_ = 0;
};

TEST_CASE("archives: what cannot be trained is refused, by layer or file") {
  const ScratchFolder folder;
  const torch::Tensor weight = torch::rand({4, 4});
  {
    ArchiveWriter writer;
    writer.layer("a", {{"w", weight}}, "return torch.matmul(x.flatten(1), self.w)");
    writer.layer("b", {{"w", weight}}, "return torch.matmul(x, self.w)");
    writer.write(folder.path("tied.pt"));
  }
  CHECK(has(fault_of(folder.path("tied.pt"), {1, 2, 2}, 4), "shares a weight with layer a"));
  {
    ArchiveWriter writer;
    writer.layer("a", {{"w", weight}}, "return (torch.matmul(x.flatten(1), self.w), 1)");
    writer.write(folder.path("pair.pt"));
  }
  CHECK(has(fault_of(folder.path("pair.pt"), {1, 2, 2}, 4), "layer a"));
  {
    ArchiveWriter writer;
    writer.layer("a", {{"w", weight.detach().clone()}},
                 "return torch.matmul(x.flatten(1), self.w)");
    writer.layer("b", {{"w", weight.detach().to(torch::kFloat64)}},
                 "return torch.matmul(x.double(), self.w)");
    writer.write(folder.path("double.pt"));
  }
  CHECK(has(fault_of(folder.path("double.pt"), {1, 2, 2}, 4), "weights of Double"));
  {
    ArchiveWriter writer;
    writer.layer("a", {{"w", weight.detach().clone()}},
                 "return torch.matmul(x.flatten(1), self.w)");
    writer.write(folder.path("good.pt"));
  }
  CHECK(fault_of(folder.path("good.pt"), {1, 2, 2}, 4) == "ok");
  CHECK(has(fault_of(folder.path("good.pt"), {1, 2, 2}, 9), "the data have 9 classes"));
  CHECK(has(fault_of(folder.path("good.pt"), {1, 3, 3}, 4), "a: cannot take"));
  CHECK(has(fault_of(folder.path("none.pt"), {1, 2, 2}, 4), "none.pt: there is no such file"));
  folder.write("text.pt", "hello");
  CHECK(has(fault_of(folder.path("text.pt"), {1, 2, 2}, 4), "is no TorchScript archive"));
  fs::create_directory(folder.path("empty"));
  CHECK(has(fault_of(folder.path("empty"), {1, 2, 2}, 4), "holds no .pt file"));
}

/// x w whose backward uses the very tensor that the forward saw, behind autograd's back.
class OwnMatmul : public torch::autograd::Function<OwnMatmul> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& x,
                               const torch::Tensor& weight) {
    context->save_for_backward({x});
    context->saved_data["weight"] = weight.detach();
    return x.matmul(weight);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradient) {
    const torch::Tensor weight = context->saved_data["weight"].toTensor();
    return {gradient[0].matmul(weight.t()),
            context->get_saved_variables()[0].t().matmul(gradient[0])};
  }
};

class OwnLayerImpl : public torch::nn::Module {
 public:
  OwnLayerImpl() : weight_(register_parameter("weight", torch::rand({3, 3}))) {}

  torch::Tensor forward(const torch::Tensor& x) { return OwnMatmul::apply(x, weight_); }

 private:
  torch::Tensor weight_;
};

TORCH_MODULE(OwnLayer);

TEST_CASE("layer check: a backward with weights of its own choice is found, others pass") {
  const nn::Layer own{.name = "own", .module = torch::nn::Sequential(OwnLayer())};
  const ir::Status status = nn::check_layer(own, torch::rand({2, 3}), false);
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().diagnostics.front().where == "own");
  CHECK(status.error().diagnostics.front().code == "layer-unsuited");
  const nn::Layer random{.name = "random",
                         .module = torch::nn::Sequential(torch::nn::Dropout(0.5))};
  CHECK(
      has(nn::check_layer(random, torch::rand({4, 9}), false).error().to_string(), "KeyedDropout"));
  torch::Tensor x = toy_samples(3, torch::kFloat32).inputs;
  const nn::Model toy = toy_model(1, torch::kFloat32);
  for (const nn::Layer& layer : toy.layers) {
    CHECK(nn::check_layer(layer, x, &layer == &toy.layers.front()).ok());
    torch::nn::Sequential module = layer.module;
    x = module->forward(x).detach();
  }
}

TEST_CASE("own model: starts where the net was handed over, trains the net itself, checks layers") {
  const torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(64, 12),
                                  torch::nn::Tanh(), torch::nn::Linear(12, 5));
  const nn::ModelFactory factory = nn::own_model(net, "mine");
  const ir::Result<nn::Model> model = factory({1, 8, 8}, 5, 0);
  REQUIRE_MESSAGE(model.ok(), model.error().to_string());
  CHECK(model.value().layers.size() == 4);
  CHECK(model.value().layers[1].name == "1");
  CHECK(model.value().layers[1].output_size == 12);
  const std::vector<torch::Tensor> first = copies(model.value());
  const nn::Samples samples = wavy_samples(12, 8, 5);
  const TrainedModel trained =
      train_model(model.value(), samples, {.partition = {2, 2}, .mini_batches = {6, 6}});
  CHECK_FALSE(same_bits(trained.weights, first));
  CHECK(net->parameters()[0].is_same(nn::parameters_of(model.value().layers)[0]));
  CHECK(same_bits(copies(factory({1, 8, 8}, 5, 0).value()), first));
  CHECK(has(factory({1, 8, 8}, 9, 0).error().to_string(), "the data have 9 classes"));
  CHECK(has(factory({1, 4, 4}, 5, 0).error().to_string(), "1: "));
}

TEST_CASE("archives: made by PyTorch, trained here, read and trained by PyTorch to the same") {
  const std::string python = python_with_torch();
  if (python.empty()) {
    std::cout << kNoPythonWithTorch;
    return;
  }
  const ScratchFolder folder;
  const std::string peer =
      "'" + python + "' -W ignore " XPIPE_SOURCE_DIR "/tests/executor_torch/script_peer.py ";
  REQUIRE(std::system((peer + "make " + (folder.path("net.pt"))).c_str()) == 0);
  fs::create_directory(folder.path("stages"));
  REQUIRE(std::system((peer + "stages " + (folder.path("stages"))).c_str()) == 0);
  ModelTraining training{.partition = {2, 1, 1}, .mini_batches = {8, 8, 8}};
  training.optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = 0.1, .momentum = 0.9};
  const nn::Samples samples = wavy_samples(24, 8, 5);
  const nn::Model net = loaded(folder.path("net.pt"), {1, 8, 8}, 5);
  const TrainedModel trained = train_model(net, samples, training);
  REQUIRE(nn::save_script_model(net, folder.path("trained.pt")).ok());
  REQUIRE(std::system((peer + "compare " + (folder.path("net.pt")) + " " +
                       (folder.path("trained.pt")) + " > " + (folder.path("difference")))
                          .c_str()) == 0);
  double difference = 1.0;
  std::ifstream(folder.path("difference")) >> difference;
  CHECK(difference < 2e-6);

  const nn::Model stages = loaded(folder.path("stages"), {1, 8, 8}, 5);
  CHECK(stages.stage_layers == std::vector<std::uint32_t>{2, 1, 1});
  CHECK(same_bits(train_model(stages, samples, training).weights, trained.weights));
  REQUIRE(nn::save_script_model(stages, folder.path("back")).ok());
  CHECK(same_bits(copies(loaded(folder.path("back"), {1, 8, 8}, 5)), trained.weights));
}

}  // namespace
}  // namespace xpipe::tests
