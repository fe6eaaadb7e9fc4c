// Training with --dtype bf16 against a replay in plain loops: float32 versions of every weight are
// kept, rounded into one bfloat16 model before each pass, and gradients are added up in float32.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/torch/intra_op_threads.h"
#include "executor/torch/stage.h"
#include "tests/executor_torch/replay.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

/// A model that computes in bfloat16.
class Bf16Model {
 public:
  explicit Bf16Model(const ToyTraining& training)
      : samples_(toy_samples(60 + 10, torch::kFloat32)),
        model_(toy_model(training.seed, torch::kFloat32)),
        leaves_(nn::parameters_of(model_.layers)) {
    for (const torch::Tensor& leaf : leaves_) {
      first_.push_back(leaf.detach().clone());
    }
    for (nn::Layer& layer : model_.layers) {
      layer.module->to(torch::kBFloat16);
    }
    leaves_ = nn::parameters_of(model_.layers);
    sums_.resize(leaves_.size());
  }

  [[nodiscard]] const std::vector<torch::Tensor>& first() const { return first_; }

  void load(std::size_t p, const torch::Tensor& weight) { leaves_[p].data().copy_(weight); }

  torch::Tensor loss(std::int64_t begin, std::int64_t count, std::int64_t mini_batch) {
    torch::Tensor x = samples_.inputs.slice(0, begin, begin + count).to(torch::kBFloat16);
    for (nn::Layer& layer : model_.layers) {
      x = layer.module->forward(x);
    }
    return torch::nn::functional::cross_entropy(x.to(torch::kFloat32),
                                                samples_.labels.slice(0, begin, begin + count)) *
           (static_cast<double>(count) / static_cast<double>(mini_batch));
  }

  void backward(const torch::Tensor& loss) {
    loss.backward();
    for (std::size_t p = 0; p < leaves_.size(); ++p) {
      const torch::Tensor gradient = leaves_[p].grad().to(torch::kFloat32);
      sums_[p] = sums_[p].defined() ? sums_[p] + gradient : gradient;
      leaves_[p].mutable_grad().reset();
    }
  }

  std::vector<torch::Tensor> take_gradients() {
    std::vector<torch::Tensor> taken(leaves_.size());
    std::swap(taken, sums_);
    return taken;
  }

  /// By parameter.
  [[nodiscard]] std::vector<std::int64_t> stages(std::uint32_t count) const {
    std::vector<std::int64_t> stage_of;
    std::size_t layer = 0;
    const std::vector<std::uint32_t> partition = toy_partition(count);
    for (std::size_t k = 0; k < partition.size(); ++k) {
      for (std::uint32_t l = 0; l < partition[k]; ++l, ++layer) {
        stage_of.insert(stage_of.end(), model_.layers[layer].module->parameters().size(),
                        static_cast<std::int64_t>(k));
      }
    }
    return stage_of;
  }

 private:
  nn::Samples samples_;
  nn::Model model_;
  std::vector<torch::Tensor> leaves_;
  std::vector<torch::Tensor> first_;
  std::vector<torch::Tensor> sums_;
};

/// Calls `pass(j, begin, count, mini_batch)` for each micro-batch, `step()` after each mini-batch.
template <typename PassOf, typename StepOf>
void walk(const ToyTraining& training, std::int64_t t, const PassOf& pass, const StepOf& step) {
  std::int64_t begin = 0;
  std::int64_t j = 0;
  for (const std::int64_t n : training.mini_batches) {
    std::int64_t at = begin;
    for (std::int64_t part = 0; part < t; ++part) {
      const std::int64_t count = n / t + (part < n % t ? 1 : 0);
      pass(j++, at, count, n);
      at += count;
    }
    step();
    begin += n;
  }
}

/// Plain SGD, whose step and prediction are one multiplication and one subtraction.
std::vector<torch::Tensor> replayed_in_bf16(const ToyTraining& training,
                                            std::uint32_t stages,
                                            std::int64_t t,
                                            const Rules& rules) {
  const nn::IntraOpThreads one(1);
  Bf16Model model(training);
  const double rate = training.optimizer.learning_rate;
  const std::vector<std::int64_t> stage_of = model.stages(stages);

  struct Known {
    torch::Tensor weight;
    torch::Tensor gradient;
  };

  std::vector<std::vector<Known>> versions;
  for (const torch::Tensor& weight : model.first()) {
    versions.push_back({{weight, {}}});
  }
  const auto load = [&](const auto& rule, std::int64_t j) {
    for (std::size_t p = 0; p < versions.size(); ++p) {
      const Read read = rule(stage_of[p], j);
      const Known& known = versions[p].at(static_cast<std::size_t>(read.version));
      const bool moves = read.distance > 0 && known.gradient.defined();
      model.load(p,
                 moves ? known.weight - known.gradient * (static_cast<double>(read.distance) * rate)
                       : known.weight);
    }
  };
  for (std::uint32_t segment = 0; segment < training.segments; ++segment) {
    for (std::vector<Known>& known : versions) {
      known = {known.back()};
    }
    walk(
        training, t,
        [&](std::int64_t j, std::int64_t begin, std::int64_t count, std::int64_t n) {
          load(rules.forward, j);
          const torch::Tensor loss = model.loss(begin, count, n);
          load(rules.backward, j);
          model.backward(loss);
        },
        [&] {
          const std::vector<torch::Tensor> gradients = model.take_gradients();
          for (std::size_t p = 0; p < versions.size(); ++p) {
            versions[p].push_back(
                {versions[p].back().weight.add(gradients[p], -rate), gradients[p]});
          }
        });
  }
  std::vector<torch::Tensor> weights;
  for (const std::vector<Known>& known : versions) {
    weights.push_back(known.back().weight);
  }
  return weights;
}

std::vector<torch::Tensor> adam_in_bf16(const ToyTraining& training, std::int64_t t) {
  const nn::IntraOpThreads one(1);
  Bf16Model model(training);
  std::vector<torch::Tensor> masters;
  for (const torch::Tensor& weight : model.first()) {
    masters.push_back(weight.clone().requires_grad_(true));
  }
  torch::optim::Adam adam(masters, torch::optim::AdamOptions(training.optimizer.learning_rate));
  for (std::uint32_t segment = 0; segment < training.segments; ++segment) {
    walk(
        training, t,
        [&](std::int64_t, std::int64_t begin, std::int64_t count, std::int64_t n) {
          for (std::size_t p = 0; p < masters.size(); ++p) {
            model.load(p, masters[p].detach());
          }
          model.backward(model.loss(begin, count, n));
        },
        [&] {
          const std::vector<torch::Tensor> gradients = model.take_gradients();
          for (std::size_t p = 0; p < masters.size(); ++p) {
            masters[p].mutable_grad() = gradients[p];
          }
          adam.step();
        });
  }
  std::vector<torch::Tensor> weights;
  for (const torch::Tensor& master : masters) {
    weights.push_back(master.detach());
  }
  return weights;
}

std::unique_ptr<ToyRun> run_in_bf16(const ir::Schedule& schedule,
                                    const ToyTraining& training,
                                    On on = On::Inline) {
  nn::RunOptions options;
  options.compute.dtype = nn::ComputeType::BFloat16;
  auto toy = toy_run(schedule, training, options);
  run_all(*toy, training, on);
  return toy;
}

ToyTraining sgd_training() {
  ToyTraining training;
  training.optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = 0.1};
  return training;
}

TEST_CASE("bf16: gpipe equals sequential training in bf16 with float32 masters, bit for bit") {
  ToyTraining training;
  training.optimizer = {.kind = nn::OptimizerKind::Adam, .learning_rate = 0.01};
  for (const std::uint32_t micro_batches : {1U, 3U}) {
    const std::vector<torch::Tensor> expected = adam_in_bf16(training, micro_batches);
    for (const std::uint32_t stages : {1U, 2U, 5U}) {
      CAPTURE(stages);
      CAPTURE(micro_batches);
      const ir::Schedule schedule = compiled("gpipe", stages, micro_batches, count(training));
      const std::vector<torch::Tensor> got = weights_of(*run_in_bf16(schedule, training)->run);
      CHECK((got.front().scalar_type() == torch::kFloat32));
      CHECK(same_bits(got, expected));
      CHECK_FALSE(same_bits(got, trained(schedule, training)));
    }
  }
}

TEST_CASE("bf16: every policy equals a replay with rounded versions and predictions, bit for bit") {
  const ToyTraining training = sgd_training();
  for (const std::uint32_t stages : {1U, 3U, 4U}) {
    CAPTURE(stages);
    const std::vector<std::pair<std::string, Rules>> cases{
        {"xpipe", xpipe_rules(stages, 2, "both")}, {"pipedream", pipedream_rules(stages)}};
    for (const auto& [policy, rules] : cases) {
      CAPTURE(policy);
      const std::uint32_t t = policy == "xpipe" ? 2 : 1;
      const ir::Schedule schedule = compiled(policy, stages, t, count(training));
      const std::vector<torch::Tensor> got = weights_of(*run_in_bf16(schedule, training)->run);
      CHECK(same_bits(got, replayed_in_bf16(training, stages, t, rules)));
      if (policy == "xpipe" && stages > 1) {
        CHECK_FALSE(same_bits(got, replayed_in_bf16(training, stages, t, unpredicted(rules))));
      }
      CHECK(same_bits(got, weights_of(*run_in_bf16(schedule, training, On::Cpu)->run)));
    }
  }
}

TEST_CASE("bf16: slots take two bytes a weight, and so does the copy of the master") {
  const ToyTraining training = sgd_training();
  const ir::Schedule schedule = compiled("xpipe", 4, 2, count(training));
  const auto narrow = run_in_bf16(schedule, training);
  const auto wide = toy_run(schedule, training);
  run_all(*wide, training, On::Inline);
  for (std::size_t k = 0; k < 4; ++k) {
    const nn::Stage& stage = narrow->run->stages()[k];
    std::size_t weights = 0;
    for (const torch::Tensor& weight : stage.weights()) {
      weights += static_cast<std::size_t>(weight.numel());
    }
    CHECK(wide->run->stages()[k].slot_bytes() == 4 * weights * (schedule.stages[k].slots - 1));
    CHECK(stage.slot_bytes() == 2 * weights * schedule.stages[k].slots);
    CHECK(stage.optimizer().state_bytes() == wide->run->stages()[k].optimizer().state_bytes());
  }
}

nn::Layer layer_of(torch::nn::Sequential module) {
  return {.name = "layer", .module = std::move(module)};
}

TEST_CASE("bf16: gradients of micro-batches are added up in float32") {
  const nn::IntraOpThreads one(1);
  torch::manual_seed(3);
  nn::Stage stage({layer_of(torch::nn::Sequential(torch::nn::Linear(6, 4)))}, true,
                  {.compute_type = torch::kBFloat16});
  std::vector<torch::Tensor> sums;
  for (std::uint32_t j = 0; j < 5; ++j) {
    const torch::Tensor x = torch::randn({3, 6});
    const torch::Tensor gradient = torch::randn({3, 4}).to(torch::kBFloat16);
    const auto output = stage.forward(ir::MicroBatch{j}, x, {});
    REQUIRE(output.ok());
    CHECK((output.value().scalar_type() == torch::kBFloat16));
    const auto down = stage.backward(ir::MicroBatch{j}, gradient, {});
    REQUIRE(down.ok());
    CHECK((down.value().scalar_type() == torch::kBFloat16));
    const torch::Tensor own = torch::mm(gradient.t(), x.to(torch::kBFloat16)).to(torch::kFloat32);
    sums.push_back(sums.empty() ? own : sums.back() + own);
    REQUIRE((stage.gradients().front().scalar_type() == torch::kFloat32));
    CHECK(torch::equal(stage.gradients().front(), sums.back()));
  }
  // What a sum in bfloat16 would have lost.
  CHECK_FALSE(torch::equal(sums.back(), sums.back().to(torch::kBFloat16).to(torch::kFloat32)));
}

TEST_CASE("bf16: batch norms keep float32 weights and statistics, and train") {
  const nn::IntraOpThreads one(1);
  using torch::nn::BatchNorm2d;
  using torch::nn::Conv2d;
  using torch::nn::Conv2dOptions;
  torch::nn::Sequential module(Conv2d(Conv2dOptions(1, 3, 3).bias(false)), BatchNorm2d(3),
                               torch::nn::ReLU());
  const std::vector<torch::Dtype> types =
      nn::compute_types_of({layer_of(module)}, torch::kBFloat16);
  CHECK((types == std::vector<torch::Dtype>{torch::kBFloat16, torch::kFloat32, torch::kFloat32}));
  const torch::Tensor mean = module->named_buffers()["1.running_mean"];
  nn::Stage stage({layer_of(module)}, false,
                  {.optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = 0.5},
                   .compute_type = torch::kBFloat16});
  const std::vector<torch::Tensor> before{stage.weights()[0].clone(), stage.weights()[1].clone()};
  REQUIRE(stage.forward(ir::MicroBatch{0}, torch::randn({4, 1, 8, 8}) + 1, {}).ok());
  REQUIRE(
      stage.backward(ir::MicroBatch{0}, torch::randn({4, 3, 6, 6}).to(torch::kBFloat16), {}).ok());
  CHECK((mean.scalar_type() == torch::kFloat32));
  CHECK(mean.abs().max().item<float>() > 0.0F);
  REQUIRE(stage.step({.mini_batch = ir::MiniBatch{0}, .version = 0}).ok());
  CHECK_FALSE(torch::equal(stage.weights()[0], before[0]));
  CHECK_FALSE(torch::equal(stage.weights()[1], before[1]));
  const torch::Tensor output = stage.evaluate(torch::randn({2, 1, 8, 8}));
  CHECK((output.scalar_type() == torch::kBFloat16));
}

}  // namespace
}  // namespace xpipe::tests
