// Backwards in two parts and recomputes, against whole backwards that keep everything: equal bits,
// in whichever order the weight parts come.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/torch/dropout.h"
#include "executor/torch/intra_op_threads.h"
#include "executor/torch/pass_graph.h"
#include "executor/torch/stage.h"
#include "scheduler/recompute_pass.h"
#include "tests/executor_torch/split_schedule.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

ToyTraining short_training() {
  ToyTraining training;
  training.optimizer = {.kind = nn::OptimizerKind::Adam, .learning_rate = 0.01};
  training.mini_batches = {12, 12, 12, 10};
  return training;
}

TEST_CASE("split backwards equal whole ones, bit for bit, wherever the weight parts stand") {
  const ToyTraining training = short_training();
  for (const std::string policy : {"gpipe", "xpipe", "pipedream"}) {
    for (const std::uint32_t stages : {1U, 2U, 4U}) {
      const std::vector<torch::Tensor> whole = trained(compiled(policy, stages, 4, 4), training);
      for (const WeightPart when : {WeightPart::AtOnce, WeightPart::BeforeTheStep}) {
        CAPTURE(policy);
        CAPTURE(stages);
        const ir::Schedule schedule = with_split_backwards(policy, stages, 4, 4, when);
        CHECK(same_bits(trained(schedule, training), whole));
        CHECK(same_bits(trained(schedule, training, On::Cpu), whole));
      }
    }
  }
}

/// A 2 x 2 layer without bias whose weights are 1 2 / 3 4.
torch::nn::Linear two_by_two() {
  torch::nn::Linear linear(torch::nn::LinearOptions(2, 2).bias(false));
  const torch::NoGradGuard no_grad;
  linear->weight.copy_(torch::tensor({{1.0F, 2.0F}, {3.0F, 4.0F}}));
  return linear;
}

class TwiceImpl : public torch::nn::Module {
 public:
  TwiceImpl() : linear_(register_module("linear", two_by_two())) {}

  torch::Tensor forward(const torch::Tensor& input) { return linear_(linear_(input)); }

 private:
  torch::nn::Linear linear_;
};

TORCH_MODULE(Twice);

TEST_CASE("split backwards: a weight used twice in one stage gets both pieces once (I1)") {
  const torch::nn::Linear linear = two_by_two();
  const std::vector<std::vector<nn::Layer>> stages{
      {{.name = "a", .module = torch::nn::Sequential(linear)},
       {.name = "b", .module = torch::nn::Sequential(linear)}},
      {{.name = "ab", .module = torch::nn::Sequential(linear, linear)}},
      {{.name = "twice", .module = torch::nn::Sequential(Twice())}}};
  for (const std::vector<nn::Layer>& layers : stages) {
    for (const bool split : {false, true}) {
      CAPTURE(layers.front().name);
      CAPTURE(split);
      nn::Stage stage(layers, true, {.splits_backward = split});
      const ir::WeightRead weights;
      const ir::MicroBatch j{0};
      const auto output = stage.forward(j, torch::ones({1, 2}), weights);
      REQUIRE(output.ok());
      CHECK(output.value().sum().item<double>() == doctest::Approx(54.0).epsilon(1e-6));
      const torch::Tensor ones = torch::ones({1, 2});
      const auto down =
          split ? stage.backward_input(j, ones, weights) : stage.backward(j, ones, weights);
      REQUIRE(down.ok());
      if (split) {
        CHECK_FALSE(stage.gradients()[0].defined());
        REQUIRE(stage.backward_weight(j, weights).ok());
      }
      // d/dx of the sum of W W x is the column sums of W W.
      CHECK(torch::allclose(down.value(), torch::tensor({{22.0F, 32.0F}}), 1e-6));
      CHECK(torch::allclose(stage.gradients()[0], torch::tensor({{7.0F, 11.0F}, {9.0F, 13.0F}}),
                            1e-6));
      CHECK_FALSE(stage.backward(j, ones, weights).ok());  // used up
    }
  }
}

TEST_CASE("split backwards: the input part reads its slot, the weight part uses what it gave") {
  // y = W2 W1 x. The input part on other weights, twice W, gives W1 the gradient of 2 W2.
  nn::Stage stage({{.name = "a", .module = torch::nn::Sequential(two_by_two())},
                   {.name = "b", .module = torch::nn::Sequential(two_by_two())}},
                  true, {.splits_backward = true});
  stage.begin_segment(2);
  REQUIRE(stage.stash({.version = 0, .into = ir::SlotId{1}}).ok());
  for (torch::Tensor weight : stage.weights(ir::SlotId{1})) {
    weight.mul_(2.0);
  }
  const ir::MicroBatch j{0};
  REQUIRE(stage.forward(j, torch::ones({1, 2}), {}).ok());
  const torch::Tensor ones = torch::ones({1, 2});
  const auto down = stage.backward_input(j, ones, {.slot = ir::SlotId{1}});
  REQUIRE(down.ok());
  CHECK(torch::allclose(down.value(), torch::tensor({{88.0F, 128.0F}})));  // (2 W)(2 W)
  REQUIRE(stage.backward_weight(j, {}).ok());
  CHECK(torch::allclose(stage.gradients()[0], torch::tensor({{8.0F, 8.0F}, {12.0F, 12.0F}})));
  CHECK(torch::allclose(stage.gradients()[1], torch::tensor({{3.0F, 7.0F}, {3.0F, 7.0F}})));
}

TEST_CASE("split backwards: one accumulator a parameter, however many micro-batches (E2)") {
  ToyTraining training = short_training();
  training.segments = 1;
  training.mini_batches = {32, 32};
  const nn::IntraOpThreads one(1);
  for (const std::uint32_t micro_batches : {4U, 8U, 16U, 32U}) {
    const auto toy = toy_run(
        with_split_backwards("gpipe", 2, micro_batches, 2, WeightPart::BeforeTheStep), training);
    executor::HandlerTable table = toy->run->handlers();
    std::vector<std::size_t> peak(2, 0);
    executor::Handler& handler = table[static_cast<std::size_t>(ir::TaskKind::BackwardWeight)];
    handler = [&, inner = handler](const ir::Schedule& schedule, ir::TaskId id) {
      const ir::Status status = inner(schedule, id);
      const std::size_t k = ir::index_of(schedule.task(id).stage);
      std::size_t bytes = 0;
      for (const torch::Tensor& gradient : toy->run->stages()[k].gradients()) {
        bytes += gradient.defined() ? gradient.storage().nbytes() : 0;
      }
      peak[k] = std::max(peak[k], bytes);
      return status;
    };
    REQUIRE(run_segment(*toy, training, 0, table, On::Inline).ok());
    for (std::size_t k = 0; k < 2; ++k) {
      std::size_t parameters = 0;
      for (const torch::Tensor& weight : toy->run->stages()[k].weights()) {
        parameters += weight.nbytes();
      }
      CHECK(peak[k] == parameters);
    }
  }
}

/// How many of the tensors that were saved for a backward are still held.
class SavedTensors {
 public:
  void watch(nn::WeightSlots& weights) {
    weights.on_activation_saved = [this](const torch::Tensor& tensor) {
      saved_.emplace_back(tensor.storage().getWeakStorageImpl());
    };
  }

  [[nodiscard]] std::size_t alive() const {
    std::size_t count = 0;
    for (const auto& storage : saved_) {
      count += storage.expired() ? 0 : 1;
    }
    return count;
  }

 private:
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> saved_;
};

TEST_CASE("split backwards: the input part frees pieces without parameters, the weight part all") {
  using torch::nn::Linear;
  using torch::nn::Sequential;
  const std::vector<nn::Layer> layers{
      {.name = "a", .module = Sequential(torch::nn::Tanh(), torch::nn::Tanh())},
      {.name = "b", .module = Sequential(Linear(4, 4))},
      {.name = "c", .module = Sequential(Linear(4, 4))}};
  const nn::Pieces pieces =
      nn::pieces_of(layers, nn::Cut::AtParameters, nn::chain_of_layers(layers.size()));
  REQUIRE(pieces.pieces.size() == 3);
  const auto weights = std::make_shared<nn::WeightSlots>(nn::parameters_of(layers));
  SavedTensors saved;
  saved.watch(*weights);
  std::optional<nn::PassGraph> graph;
  {
    const nn::ForwardScope scope(weights);
    nn::Tensors tensors(pieces.tensors);
    tensors.front() = torch::ones({2, 4}).requires_grad_();
    graph.emplace(pieces.pieces, tensors, nn::PassGraph::Tail());
  }
  // The first tanh's result; the second one's, once more as b's input; c's input.
  CHECK(saved.alive() == 4);
  const nn::BackwardScope scope(*weights, ir::kMasterSlot);
  nn::Tensors gradients(pieces.tensors);
  gradients[pieces.exports.front()] = torch::ones({2, 4});
  graph->backward_input(gradients);
  CHECK(gradients.front().defined());
  CHECK(saved.alive() == 3);  // b's graph still holds what the second tanh gave
  graph->backward_weight();
  CHECK(saved.alive() == 0);
}

/// A batch norm, a dropout and two more layers.
nn::Model normed_model() {
  using namespace torch::nn;  // NOLINT(google-build-using-namespace): as in toy.cpp
  nn::Model model{.name = "normed", .layers = {}};
  model.layers.push_back(
      {.name = "a",
       .module = Sequential(Conv2d(Conv2dOptions(1, 3, 3).padding(1)), BatchNorm2d(3), ReLU())});
  model.layers.push_back({.name = "b",
                          .module = Sequential(Conv2d(Conv2dOptions(3, 4, 3)), BatchNorm2d(4),
                                               ReLU(), MaxPool2d(2), nn::KeyedDropout(0.3, 1))});
  model.layers.push_back(
      {.name = "c",
       .module = Sequential(Flatten(), Linear(36, 12), Tanh(), nn::KeyedDropout(0.2, 2))});
  model.layers.push_back({.name = "d", .module = Sequential(Linear(12, 5))});
  torch::manual_seed(5);
  for (nn::Layer& layer : model.layers) {
    for (torch::Tensor& parameter : layer.module->parameters()) {
      const torch::NoGradGuard no_grad;
      parameter.uniform_(-0.5, 0.5);
    }
  }
  return model;
}

/// Weights and buffers after a training.
std::vector<torch::Tensor> normed_training(const ir::Schedule& schedule) {
  const ToyTraining training = short_training();
  const nn::Samples samples = toy_samples(46, torch::kFloat32);
  const std::vector<std::uint32_t> partition = schedule.stages.size() == 1
                                                   ? std::vector<std::uint32_t>{4}
                                                   : std::vector<std::uint32_t>{2, 2};
  const nn::Model model = normed_model();
  ToyRun toy{schedule, samples, nullptr};
  toy.run = std::make_unique<nn::TrainingRun>(
      nn::cut(model, partition), toy.samples,
      nn::RunOptions{.optimizer = training.optimizer,
                     .predicts = nn::predicts(schedule),
                     .splits_backward = nn::splits_backward(schedule),
                     .seed = 3});
  run_all(toy, training, On::Inline);
  std::vector<torch::Tensor> state = weights_of(*toy.run);
  for (const nn::Layer& layer : model.layers) {
    for (const torch::Tensor& buffer : layer.module->buffers()) {
      state.push_back(buffer);
    }
  }
  return state;
}

TEST_CASE("recompute: same masks, statistics counted once, so no bit changes") {
  for (const std::string policy : {"gpipe", "xpipe"}) {
    for (const std::uint32_t stages : {1U, 2U}) {
      CAPTURE(policy);
      CAPTURE(stages);
      // xpipe's backwards read other weights than the forwards, and so do its recomputes: of the
      // whole stage, or of each layer on the input that the forward gave it.
      const bool same_weights = policy == "gpipe" || stages == 1;
      const std::vector<torch::Tensor> kept = normed_training(compiled(policy, stages, 4, 4));
      std::vector<std::vector<torch::Tensor>> recomputed;
      for (const scheduler::Recompute mode :
           {scheduler::Recompute::Stage, scheduler::Recompute::Layer}) {
        scheduler::Passes passes;
        passes.recompute = mode;
        recomputed.push_back(normed_training(compiled(policy, stages, 4, 4, {}, passes)));
        CHECK(same_bits(recomputed.back(), kept) == same_weights);
      }
      CHECK(same_bits(recomputed[0], recomputed[1]) == same_weights);
      const ir::Schedule both = with_split_backwards(
          policy, stages, 4, 4, WeightPart::BeforeTheStep, scheduler::Recompute::Stage);
      CHECK(same_bits(normed_training(both), recomputed[0]));
    }
  }
}

TEST_CASE("recompute: a layer that writes into its kept input is told, not believed") {
  using torch::nn::Linear;
  using torch::nn::Sequential;
  nn::Stage stage(
      {{.name = "a", .module = Sequential(Linear(3, 3))},
       {.name = "b",
        .module = Sequential(torch::nn::ReLU(torch::nn::ReLUOptions(true)), Linear(3, 3))}},
      true, {});
  const ir::MicroBatch j{0};
  REQUIRE(stage.forward(j, torch::ones({1, 3}), {}, nn::Keep::LayerInputs).ok());
  std::string said;
  try {
    (void)stage.recompute(j, {});
  } catch (const c10::Error& error) {
    said = error.what_without_backtrace();
  }
  CHECK(said.find("modified in place") != std::string::npos);
}

}  // namespace
}  // namespace xpipe::tests
