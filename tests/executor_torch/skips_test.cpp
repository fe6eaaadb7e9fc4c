// Skips: a model in which layers read the outputs of layers far before them trains like the same
// model in one piece, written as a user of LibTorch writes it.
#include "executor/torch/skips.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/torch/evaluate.h"
#include "executor/torch/stage.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"
#include "scheduler/layout.h"
#include "scheduler/recompute_pass.h"
#include "tests/executor_torch/split_schedule.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

using nn::Join;

constexpr std::uint32_t kSamples = 24;
constexpr std::uint32_t kMiniBatch = 8;

/// Six layers in double. Layer 3 adds the output of 1; layer 5 reads those of 0 and 1 beside that
/// of 4: one jumps over three stages of six, one tensor is read three times.
nn::Model skip_model() {
  using torch::nn::Linear;
  using torch::nn::Sequential;
  nn::Model model{.name = "skips", .layers = {}};
  torch::manual_seed(11);
  for (int l = 0; l < 6; ++l) {
    Sequential layer;
    if (l == 0) {
      layer->push_back(torch::nn::Flatten());
    }
    layer->push_back(Linear(l == 0 ? 64 : l == 5 ? 18 : 6, l == 5 ? 5 : 6));
    if (l < 5) {
      layer->push_back(torch::nn::Tanh());
    }
    layer->to(torch::kFloat64);
    model.layers.push_back(
        {.name = "l" + std::to_string(l), .module = layer, .output_size = l == 5 ? 5 : 6});
  }
  model.skips = {{1, 3, Join::Add}, {0, 5, Join::Concatenate}, {1, 5, Join::Concatenate}};
  return model;
}

torch::Tensor run_layer(const nn::Model& model, std::size_t l, const torch::Tensor& input) {
  torch::nn::Sequential module = model.layers[l].module;
  return module->forward(input);
}

/// The model as one function, without anything of skips.h.
torch::Tensor run_plainly(const nn::Model& model, const torch::Tensor& input) {
  const torch::Tensor a = run_layer(model, 0, input);
  const torch::Tensor b = run_layer(model, 1, a);
  const torch::Tensor c = run_layer(model, 2, b);
  const torch::Tensor d = run_layer(model, 3, c + b);
  const torch::Tensor e = run_layer(model, 4, d);
  return run_layer(model, 5, torch::cat({e, a, b}, 1));
}

struct Outcome {
  std::vector<double> losses;
  std::vector<torch::Tensor> weights;
};

/// torch::optim, a backward for every micro-batch, one step a mini-batch.
Outcome train_plainly(std::uint32_t micro_batches) {
  const nn::Model model = skip_model();
  const nn::Samples samples = toy_samples(kSamples, torch::kFloat64);
  torch::optim::SGD optimizer(nn::parameters_of(model.layers), 0.05);
  Outcome outcome;
  for (std::uint32_t begin = 0; begin < kSamples; begin += kMiniBatch) {
    optimizer.zero_grad();
    double sum = 0.0;
    const std::uint32_t size = kMiniBatch / micro_batches;
    for (std::uint32_t j = 0; j < micro_batches; ++j) {
      const std::uint32_t first = begin + j * size;
      const torch::Tensor loss = torch::nn::functional::cross_entropy(
          run_plainly(model, samples.inputs.slice(0, first, first + size)),
          samples.labels.slice(0, first, first + size));
      sum += loss.item<double>() * size;
      (loss * (static_cast<double>(size) / kMiniBatch)).backward();
    }
    optimizer.step();
    outcome.losses.push_back(sum / kMiniBatch);
  }
  for (const torch::Tensor& parameter : nn::parameters_of(model.layers)) {
    outcome.weights.push_back(parameter.detach().clone());
  }
  return outcome;
}

scheduler::StageGraph graph_of(const std::vector<nn::StageWiring>& wiring) {
  scheduler::StageGraph graph;
  graph.stages = static_cast<std::uint32_t>(wiring.size());
  for (std::size_t k = 0; k < wiring.size(); ++k) {
    for (const nn::StagePort& port : wiring[k].to) {
      graph.links.push_back({ir::StageId{static_cast<std::uint16_t>(k)},
                             ir::StageId{static_cast<std::uint16_t>(port.stage)},
                             ir::kUnknownBytes});
    }
  }
  return graph;
}

ir::Schedule compiled_for(const scheduler::StageGraph& graph,
                          const std::string& policy,
                          std::uint32_t micro_batches,
                          std::uint32_t mini_batches,
                          const scheduler::Passes& passes) {
  scheduler::PolicyRegistry registry;
  policies::register_all(registry);
  ir::Result<ir::Schedule> schedule = scheduler::compile(*registry.find(policy).value(),
                                                         {.stages = graph.stages,
                                                          .micro_batches = micro_batches,
                                                          .mini_batches = mini_batches,
                                                          .options = {}},
                                                         graph, passes);
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  return std::move(schedule).value();
}

struct HowTrained {
  std::string policy = "gpipe";
  std::vector<std::uint32_t> partition{6};
  std::uint32_t micro_batches = 4;
  scheduler::Passes passes = {};
  bool splits_backward = false;
  On on = On::Inline;
};

Outcome train_in_stages(const HowTrained& how) {
  const nn::Model model = skip_model();
  const std::vector<nn::StageWiring> wiring = nn::wire(how.partition, model.skips);
  const auto stages = static_cast<std::uint32_t>(how.partition.size());
  ToyTraining training;
  training.dtype = torch::kFloat64;
  training.segments = 1;
  training.mini_batches.assign(kSamples / kMiniBatch, kMiniBatch);
  const scheduler::StageGraph graph = graph_of(wiring);
  const std::uint32_t mini_batches = kSamples / kMiniBatch;
  ToyRun toy{how.splits_backward
                 ? with_split_backwards(how.policy, stages, how.micro_batches, mini_batches,
                                        WeightPart::BeforeTheStep, how.passes.recompute, &graph)
                 : compiled_for(graph, how.policy, how.micro_batches, mini_batches, how.passes),
             toy_samples(kSamples, torch::kFloat64), nullptr};
  toy.run = std::make_unique<nn::TrainingRun>(
      nn::cut(model, how.partition), toy.samples,
      nn::RunOptions{.optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = 0.05},
                     .predicts = nn::predicts(toy.schedule),
                     .splits_backward = nn::splits_backward(toy.schedule),
                     .wiring = wiring});
  const ir::Status status = run_segment(toy, training, 0, toy.run->handlers(), how.on);
  REQUIRE_MESSAGE(status.ok(), status.error().to_string());
  Outcome outcome;
  for (const nn::MiniBatchRecord& record : toy.run->take_records()) {
    outcome.losses.push_back(record.loss);
  }
  outcome.weights = weights_of(*toy.run);
  CHECK(toy.run->mailboxes().bytes() == 0);
  return outcome;
}

double largest_gap(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

TEST_CASE("wiring: a tensor goes once to each stage that reads it, straight there") {
  const nn::Model model = skip_model();
  const std::vector<nn::StageWiring> wiring = nn::wire({1, 1, 1, 2, 1}, model.skips);
  CHECK((wiring[0].to == std::vector<nn::StagePort>{{1, {0}}, {4, {0}}}));
  CHECK((wiring[1].to == std::vector<nn::StagePort>{{2, {1}}, {3, {1}}, {4, {1}}}));
  CHECK((wiring[4].from == std::vector<nn::StagePort>{{0, {0}}, {1, {1}}, {3, {4}}}));
  CHECK(wiring[4].imports == std::vector<std::size_t>{0, 1, 4});
  CHECK(wiring[3].exports == std::vector<std::size_t>{4});
  // In two stages it is one message with what the first stage hands on anyway.
  CHECK((nn::wire({2, 4}, model.skips)[0].to == std::vector<nn::StagePort>{{1, {0, 1}}}));
  CHECK(nn::read_from(wiring, 2) == std::vector<std::size_t>{0, 1});
  CHECK(nn::read_from(wiring, 4) == std::vector<std::size_t>{0, 1, 4});
}

TEST_CASE("skips: none to the next layer, backwards, or out of the model") {
  CHECK(nn::check_skips({{0, 2}, {1, 5}}, 6).ok());
  for (const nn::Skip& bad : {nn::Skip{0, 1}, nn::Skip{3, 2}, nn::Skip{0, 6}}) {
    const ir::Status status = nn::check_skips({bad}, 6);
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().diagnostics.front().code == "bad-skip");
  }
}

TEST_CASE("skips: however the layers are cut, training is that of one piece") {
  for (const std::uint32_t micro_batches : {1U, 4U}) {
    const Outcome plain = train_plainly(micro_batches);
    for (const std::vector<std::uint32_t>& partition :
         {std::vector<std::uint32_t>{6}, {2, 4}, {1, 2, 3}, {3, 1, 2}, {1, 1, 1, 1, 1, 1}}) {
      CAPTURE(micro_batches);
      CAPTURE(partition.size());
      const Outcome cut = train_in_stages({.partition = partition, .micro_batches = micro_batches});
      CHECK(largest_gap(cut.losses, plain.losses) < 1e-12);
      CHECK(largest_difference(cut.weights, plain.weights) < 1e-12);
    }
  }
}

TEST_CASE("skips: all policies, equal to sequential training in one stage") {
  const Outcome plain = train_plainly(1);
  for (const std::string policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    CAPTURE(policy);
    const Outcome one = train_in_stages({.policy = policy, .micro_batches = 1});
    CHECK(largest_difference(one.weights, plain.weights) < 1e-12);
  }
}

TEST_CASE("skips: threads, split backwards and recomputation change no bit") {
  const std::vector<std::uint32_t> partition{1, 2, 2, 1};
  scheduler::Passes by_stage;
  by_stage.recompute = scheduler::Recompute::Stage;
  scheduler::Passes by_layer;
  by_layer.recompute = scheduler::Recompute::Layer;
  for (const std::string policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    CAPTURE(policy);
    const HowTrained how{.policy = policy, .partition = partition};
    const Outcome whole = train_in_stages(how);
    HowTrained other = how;
    other.on = On::Cpu;
    CHECK(same_bits(train_in_stages(other).weights, whole.weights));
    other.splits_backward = true;
    CHECK(same_bits(train_in_stages(other).weights, whole.weights));
    if (policy != "gpipe") {
      continue;  // recomputes of the others read other weights than their forwards
    }
    for (const scheduler::Passes& passes : {by_stage, by_layer}) {
      HowTrained again = how;
      again.passes = passes;
      CHECK(same_bits(train_in_stages(again).weights, whole.weights));
    }
  }
}

TEST_CASE("skips: two stages of one device need no message") {
  const Outcome plain = train_plainly(4);
  scheduler::Passes passes;
  const auto layout = scheduler::resolve_layout({.stages = 3, .placement = {0, 1, 0}});
  REQUIRE(layout.ok());
  passes.layout = layout.value();
  const Outcome placed = train_in_stages({.partition = {2, 2, 2}, .passes = passes});
  CHECK(largest_difference(placed.weights, plain.weights) < 1e-12);
}

TEST_CASE("skips: evaluation takes the same way") {
  const nn::Model model = skip_model();
  const nn::Samples samples = toy_samples(kSamples, torch::kFloat64);
  const torch::Tensor expected = torch::nn::functional::cross_entropy(
      run_plainly(model, samples.inputs).detach(), samples.labels);
  const std::vector<std::uint32_t> partition{1, 2, 3};
  const std::vector<nn::StageWiring> wiring = nn::wire(partition, model.skips);
  std::vector<std::vector<nn::Layer>> parts = nn::cut(model, partition);
  std::vector<std::unique_ptr<nn::Stage>> stages;
  std::vector<nn::Stage*> all;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    stages.push_back(std::make_unique<nn::Stage>(std::move(parts[k]), k > 0,
                                                 nn::StageOptions{.wiring = wiring[k]}));
    all.push_back(stages.back().get());
  }
  const auto evaluation = nn::evaluate(all, samples);
  REQUIRE(evaluation.ok());
  CHECK(evaluation.value().loss == doctest::Approx(expected.item<double>()).epsilon(1e-12));
}

TEST_CASE("skips: an in-place layer behind a tensor that others read is told, not believed") {
  using torch::nn::Linear;
  using torch::nn::Sequential;
  nn::Model model{.name = "in place", .layers = {}};
  model.layers.push_back({.name = "a", .module = Sequential(Linear(4, 4))});
  model.layers.push_back(
      {.name = "b", .module = Sequential(torch::nn::ReLU(torch::nn::ReLUOptions(true)))});
  model.layers.push_back({.name = "c", .module = Sequential(Linear(4, 4))});
  const std::vector<nn::StageWiring> wiring = nn::wire({3}, {{0, 2, Join::Add}});
  nn::Stage stage(model.layers, false, {.wiring = wiring.front()});
  CHECK_THROWS_WITH(static_cast<void>(stage.forward(ir::MicroBatch{0}, torch::ones({2, 4}), {})),
                    doctest::Contains("modified in place"));
}

}  // namespace
}  // namespace xpipe::tests
