// Replicas of stages: gradients are summed in the order of ranks, so all replicas keep equal bits,
// those of sequential training that adds up in the same order.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/torch/gradient_exchange.h"
#include "executor/torch/intra_op_threads.h"
#include "executor/torch/step_weights.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

ToyTraining replica_training() {
  ToyTraining training;
  training.optimizer = {
      .kind = nn::OptimizerKind::Sgd, .learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01};
  training.mini_batches = {12, 12, 12, 10};
  return training;
}

/// Sequential training whose gradients of stage k are those of micro-batches 0, r, 2r ... plus
/// those of 1, r + 1 ... plus ..., each sum by itself, with r the stage's replicas.
std::vector<torch::Tensor> summed_by_rank(const ToyTraining& training,
                                          const std::vector<std::uint32_t>& replicas,
                                          std::uint32_t micro_batches) {
  const nn::IntraOpThreads one(1);
  nn::Segment segment = toy_segment(training, 0);
  const nn::Samples samples =
      toy_samples(static_cast<std::uint32_t>(segment.order.size()), training.dtype);
  const nn::Model model = toy_model(training.seed, training.dtype);
  const auto stages = static_cast<std::uint32_t>(replicas.size());
  std::vector<torch::Tensor> leaves = nn::parameters_of(model.layers);
  std::vector<std::uint32_t> replicas_of_leaf;
  const auto parts = nn::cut(model, toy_partition(stages));
  for (std::size_t k = 0; k < parts.size(); ++k) {
    replicas_of_leaf.insert(replicas_of_leaf.end(), nn::parameters_of(parts[k]).size(),
                            replicas[k]);
  }
  torch::optim::SGD optimizer(leaves, torch::optim::SGDOptions(training.optimizer.learning_rate)
                                          .momentum(training.optimizer.momentum)
                                          .weight_decay(training.optimizer.weight_decay));
  for (std::uint32_t epoch = 0; epoch < training.segments; ++epoch) {
    for (std::uint32_t i = 0; i < segment.mini_batches.size(); ++i) {
      std::vector<std::vector<torch::Tensor>> by_rank(leaves.size());
      for (std::uint32_t part = 0; part < micro_batches; ++part) {
        const std::uint32_t j = i * micro_batches + part;
        const nn::SampleRange range =
            nn::micro_batch_range(segment.mini_batches[i], micro_batches, part);
        torch::Tensor x = nn::gather(samples.inputs, segment.order, range);
        for (const nn::Layer& layer : model.layers) {
          torch::nn::Sequential module = layer.module;
          x = module->forward(x);
        }
        const torch::Tensor loss =
            torch::nn::functional::cross_entropy(x,
                                                 nn::gather(samples.labels, segment.order, range)) *
            (static_cast<double>(range.count) / segment.mini_batches[i].count);
        const std::vector<torch::Tensor> gradients = torch::autograd::grad({loss}, leaves);
        for (std::size_t p = 0; p < leaves.size(); ++p) {
          by_rank[p].resize(replicas_of_leaf[p]);
          torch::Tensor& sum = by_rank[p][j % replicas_of_leaf[p]];
          sum = sum.defined() ? sum + gradients[p] : gradients[p];
        }
      }
      for (std::size_t p = 0; p < leaves.size(); ++p) {
        torch::Tensor sum = by_rank[p][0];
        for (std::size_t r = 1; r < by_rank[p].size(); ++r) {
          sum = sum + by_rank[p][r];
        }
        leaves[p].mutable_grad() = sum;
      }
      optimizer.step();
    }
  }
  return leaves;
}

void check_alike(nn::TrainingRun& run, const ir::Schedule& schedule) {
  const ir::Replicas replicas(schedule);
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    const std::size_t first = replicas.begin(replicas.stage(r));
    CHECK(same_bits(run.stages()[r].weights(), run.stages()[first].weights()));
  }
}

TEST_CASE("replicas: gpipe equals sequential training that sums by rank, bit for bit") {
  const ToyTraining training = replica_training();
  for (const std::vector<std::uint32_t>& replicas : std::vector<std::vector<std::uint32_t>>{
           {2}, {3}, {2, 1}, {1, 2}, {2, 2}, {2, 3}, {1, 2, 1}}) {
    CAPTURE(replicas.size());
    CAPTURE(replicas[0]);
    const ir::Schedule schedule = compiled("gpipe", static_cast<std::uint32_t>(replicas.size()), 4,
                                           4, {}, replicated(replicas));
    const std::vector<torch::Tensor> expected = summed_by_rank(training, replicas, 4);
    for (const On on : {On::Inline, On::Cpu}) {
      const auto toy = toy_run(schedule, training);
      run_all(*toy, training, on);
      CHECK(same_bits(weights_of(*toy->run), expected));
      check_alike(*toy->run, schedule);
    }
  }
}

TEST_CASE("replicas: sums in another order are other bits, so the order was tested") {
  const ToyTraining training = replica_training();
  CHECK_FALSE(same_bits(summed_by_rank(training, {2, 1}, 4), summed_by_rank(training, {1, 1}, 4)));
}

TEST_CASE("replicas: asynchronous policies keep all replicas equal, on threads as inline") {
  const ToyTraining training = replica_training();
  for (const std::string policy : {"xpipe", "pipedream"}) {
    for (const std::vector<std::uint32_t>& replicas :
         std::vector<std::vector<std::uint32_t>>{{2, 1}, {2, 2}, {2, 3}}) {
      CAPTURE(policy);
      CAPTURE(replicas[1]);
      const ir::Schedule schedule = compiled(policy, 2, 2, 4, {}, replicated(replicas));
      const auto here = toy_run(schedule, training);
      run_all(*here, training, On::Inline);
      check_alike(*here->run, schedule);
      const auto there = toy_run(schedule, training);
      run_all(*there, training, On::Cpu);
      check_alike(*there->run, schedule);
      CHECK(same_bits(weights_of(*here->run), weights_of(*there->run)));
    }
  }
}

TEST_CASE("replicas: whole mini-batches in turn make one step with the mean over their samples") {
  // Two mini-batches of unlike size, one on each replica, one step: as one mini-batch of 22.
  ToyTraining training = replica_training();
  training.dtype = torch::kFloat64;
  training.segments = 1;
  training.mini_batches = {12, 10};
  const std::vector<torch::Tensor> two =
      trained(compiled("pipedream", 1, 1, 2, {}, replicated({2})), training);
  training.mini_batches = {22};
  const std::vector<torch::Tensor> one = trained(compiled("gpipe", 1, 1, 1), training);
  CHECK(largest_difference(two, one) < 1e-12);
}

TEST_CASE("step weights: shares are over the samples of the step that uses them") {
  const ir::Schedule plain = compiled("gpipe", 2, 2, 3);
  const nn::StepWeights each(plain, {8, 8, 4});
  CHECK(each.share(ir::MiniBatch{0}, 4) == 0.5);
  CHECK(each.share(ir::MiniBatch{2}, 1) == 0.25);
  CHECK(each.factor(ir::StageId{1}, ir::MiniBatch{2}) == 1.0);

  const ir::Schedule alike = compiled("pipedream", 2, 1, 4, {}, replicated({2, 2}));
  const nn::StepWeights pairs(alike, {8, 8, 8, 4});
  CHECK(pairs.share(ir::MiniBatch{0}, 8) == 0.5);
  CHECK(pairs.share(ir::MiniBatch{3}, 4) == doctest::Approx(4.0 / 12));
  CHECK(pairs.factor(ir::StageId{0}, ir::MiniBatch{1}) == 1.0);

  // Stage 0 steps for {0, 1} and {2, 3}, stage 1 for each.
  const ir::Schedule unlike = compiled("pipedream", 2, 1, 4, {}, replicated({2, 1}));
  const nn::StepWeights mixed(unlike, {8, 8, 8, 4});
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::uint32_t samples = i < 3 ? 8 : 4;
    const double share = mixed.share(ir::MiniBatch{i}, samples);
    CHECK(share * mixed.factor(ir::StageId{1}, ir::MiniBatch{i}) == doctest::Approx(1.0));
    const double of_pair = i < 2 ? 16.0 : 12.0;
    const ir::MiniBatch step{i < 2 ? 1U : 3U};
    CHECK(share * mixed.factor(ir::StageId{0}, step) == doctest::Approx(samples / of_pair));
  }
}

/// Gives members that are elsewhere what the test says.
class Elsewhere : public nn::PeerExchange {
 public:
  explicit Elsewhere(std::vector<nn::Tensors> members) : members_(std::move(members)) {}

  ir::Status complete(const nn::ExchangeKey& key,
                      std::vector<std::optional<nn::Tensors>>& members) override {
    CHECK(key == nn::ExchangeKey{.stage = ir::StageId{1}, .mini_batch = ir::MiniBatch{3}});
    ++calls;
    for (std::size_t m = 0; m < members.size(); ++m) {
      if (!members[m]) {
        members[m] = members_[m];
      }
    }
    return {};
  }

  int calls = 0;

 private:
  std::vector<nn::Tensors> members_;
};

TEST_CASE("gradient exchange: members elsewhere count by rank, and the sum is made once") {
  // In floats (a + b) + c is 1 here and a + (b + c) is 0.
  const torch::Tensor a = torch::full({2, 2}, 1e8F);
  const torch::Tensor b = torch::full({2, 2}, -1e8F);
  const torch::Tensor c = torch::ones({2, 2});
  const auto layer = [] {
    return std::vector<nn::Layer>{{.name = "a",
                                   .module = torch::nn::Sequential(torch::nn::Linear(
                                       torch::nn::LinearOptions(2, 2).bias(false)))}};
  };
  nn::Stage first(layer(), false, {});
  nn::Stage last(layer(), false, {});
  const nn::ExchangeKey key{.stage = ir::StageId{1}, .mini_batch = ir::MiniBatch{3}};
  Elsewhere peers({{}, {b.clone()}, {}});
  nn::GradientExchange exchange(&peers);
  first.set_gradients({a.clone()});
  last.set_gradients({c.clone()});
  for (int member = 0; member < 2; ++member) {
    REQUIRE(exchange.sum(key, {&first, nullptr, &last}).ok());
    CHECK(torch::equal(first.gradients()[0], c));
    CHECK(torch::equal(last.gradients()[0], c));
  }
  CHECK(peers.calls == 1);
  CHECK(first.gradients()[0].data_ptr() != last.gradients()[0].data_ptr());

  // Who has no gradient of a parameter adds nothing, and gets the sum all the same.
  exchange.begin_segment();
  first.set_gradients({torch::Tensor()});
  last.set_gradients({torch::Tensor()});
  REQUIRE(exchange.sum(key, {&first, nullptr, &last}).ok());
  CHECK(torch::equal(first.gradients()[0], b));
  CHECK(torch::equal(last.gradients()[0], b));
}

}  // namespace
}  // namespace xpipe::tests
