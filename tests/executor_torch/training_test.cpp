// What the executor trains, against oracles that know nothing of it: properties P10 to P13 and P16
// of methods.md 10 for the four policies.
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "executor/torch/intra_op_threads.h"
#include "ir/task.h"
#include "tests/executor_torch/replay.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

using executor::HandlerTable;
using ir::index_of;

nn::OptimizerConfig adam() {
  return {.kind = nn::OptimizerKind::Adam, .learning_rate = 0.01};
}

nn::OptimizerConfig sgd(double momentum) {
  return {.kind = nn::OptimizerKind::Sgd, .learning_rate = 0.1, .momentum = momentum};
}

const std::vector<PolicyCase> kPolicies{{"gpipe", {}},
                                        {"xpipe", {}},
                                        {"xpipe", {{"predict", "none"}}},
                                        {"xpipe", {{"predict", "forward"}}},
                                        {"pipedream", {}},
                                        {"spectrain", {}},
                                        {"spectrain", {{"variant", "2"}}}};

std::string name_of(const PolicyCase& policy) {
  std::string name = policy.policy;
  for (const auto& [key, value] : policy.options) {
    name += " " + key + "=" + value;
  }
  return name;
}

TEST_CASE("gpipe: any number of stages equals sequential training with accumulation, bit for bit") {
  for (const nn::OptimizerConfig& optimizer : {adam(), sgd(0.0), sgd(0.9)}) {
    ToyTraining training;
    training.optimizer = optimizer;
    training.optimizer.weight_decay = 0.01;
    for (const std::uint32_t micro_batches : {1U, 4U}) {
      const std::vector<torch::Tensor> expected = plainly_trained(training, micro_batches);
      for (const std::uint32_t stages : {1U, 2U, 4U}) {
        CAPTURE(stages);
        CAPTURE(micro_batches);
        CHECK(
            same_bits(trained(compiled("gpipe", stages, micro_batches, count(training)), training),
                      expected));
      }
    }
  }
}

TEST_CASE("xpipe: one stage is plain Adam with accumulation, bit for bit (P11)") {
  ToyTraining training;
  training.optimizer = adam();
  for (const std::string difference : {"paper", "local"}) {
    const ir::Schedule schedule =
        compiled("xpipe", 1, 4, count(training), {{"version-difference", difference}});
    CHECK(same_bits(trained(schedule, training), plainly_trained(training, 4)));
  }
}

TEST_CASE("xpipe: one stage is plain Adam on whole mini-batches, to rounding (P11)") {
  ToyTraining training;
  training.optimizer = adam();
  training.dtype = torch::kFloat64;
  const std::vector<torch::Tensor> got =
      trained(compiled("xpipe", 1, 4, count(training)), training);
  const std::vector<torch::Tensor> whole = plainly_trained(training, 1);
  CHECK_FALSE(same_bits(got, whole));  // the sums are added up differently
  CHECK(largest_difference(got, whole) < 1e-10);
}

TEST_CASE("pipedream: equals a replay of delayed SGD, bit for bit") {
  ToyTraining training;
  training.optimizer = sgd(0.9);
  for (const std::uint32_t stages : {1U, 2U, 3U, 4U, 5U}) {
    CAPTURE(stages);
    const ir::Schedule schedule = compiled("pipedream", stages, 1, count(training));
    CHECK(same_bits(trained(schedule, training),
                    replayed(training, stages, 1, pipedream_rules(stages))));
  }
}

TEST_CASE("pipedream: the replay of another delay differs") {
  ToyTraining training;
  training.optimizer = sgd(0.9);
  CHECK_FALSE(same_bits(trained(compiled("pipedream", 4, 1, count(training)), training),
                        replayed(training, 4, 1, pipedream_rules(5))));
}

/// What a policy must compute, by the formulas of methods.md.
Rules rules_of(const PolicyCase& policy, std::uint32_t stages, std::uint32_t micro_batches) {
  const auto option = [&](const char* name, const char* otherwise) {
    const auto found = policy.options.find(name);
    return found == policy.options.end() ? std::string(otherwise) : found->second;
  };
  if (policy.policy == "spectrain") {
    return spectrain_rules(stages, option("variant", "1") == "1" ? 1 : 2);
  }
  if (policy.policy == "pipedream") {
    return pipedream_rules(stages);
  }
  return xpipe_rules(stages, micro_batches, option("predict", "both"));
}

struct OptimizerCase {
  std::string name;
  nn::OptimizerConfig optimizer;
  nn::BiasCorrection bias = nn::BiasCorrection::Standard;
};

const std::vector<OptimizerCase> kOptimizers{
    {"sgd", sgd(0.0)},
    {"sgd momentum", sgd(0.9)},
    {"sgd decay", {.kind = nn::OptimizerKind::Sgd, .learning_rate = 0.1, .weight_decay = 0.05}},
    {"adam", adam()},
    {"adam literal", adam(), nn::BiasCorrection::Literal},
    {"adamw", {.kind = nn::OptimizerKind::AdamW, .learning_rate = 0.01, .weight_decay = 0.1}},
    {"rmsprop", {.kind = nn::OptimizerKind::RmsProp, .learning_rate = 0.005}},
};

TEST_CASE("asynchronous policies: equal a replay of the versions and predictions of methods.md") {
  // In double: a wrong version or distance shows at 1e-3 and above, rounding below 1e-9.
  for (const PolicyCase& policy : kPolicies) {
    if (policy.policy == "gpipe") {
      continue;
    }
    for (const OptimizerCase& optimizer : kOptimizers) {
      for (const auto& [stages, micro_batches] :
           {std::pair{2U, 1U}, std::pair{3U, 2U}, std::pair{4U, 1U}, std::pair{4U, 2U},
            std::pair{5U, 4U}}) {
        const bool whole = policy.policy != "xpipe";
        if (whole && micro_batches != 1) {
          continue;
        }
        ToyTraining training;
        training.dtype = torch::kFloat64;
        training.optimizer = optimizer.optimizer;
        training.prediction.bias = optimizer.bias;
        training.prediction.extrapolation = policy.policy == "spectrain"
                                                ? nn::Extrapolation::SmoothedGradient
                                                : nn::Extrapolation::OptimizerStep;
        const ir::Schedule schedule =
            compiled(policy.policy, stages, micro_batches, count(training), policy.options);
        const std::vector<torch::Tensor> got = trained(schedule, training);
        const Rules rules = rules_of(policy, stages, micro_batches);
        INFO(name_of(policy), ", ", optimizer.name, ", stages ", stages, ", micro-batches ",
             micro_batches);
        CHECK(largest_difference(got, replayed(training, stages, micro_batches, rules)) < 1e-9);
      }
    }
  }
}

TEST_CASE("asynchronous policies: a replay without predictions differs") {
  for (const PolicyCase& policy :
       {PolicyCase{"xpipe", {}}, PolicyCase{"xpipe", {{"predict", "forward"}}},
        PolicyCase{"spectrain", {}}, PolicyCase{"spectrain", {{"variant", "2"}}}}) {
    ToyTraining training;
    training.dtype = torch::kFloat64;
    training.optimizer = adam();
    const std::vector<torch::Tensor> got =
        trained(compiled(policy.policy, 4, 1, count(training), policy.options), training);
    CAPTURE(name_of(policy));
    CHECK(largest_difference(got, replayed(training, 4, 1, unpredicted(rules_of(policy, 4, 1)))) >
          1e-4);
  }
}

TEST_CASE("every policy: threads give the bits of inline, and a second run those of the first") {
  for (const PolicyCase& policy : kPolicies) {
    for (const std::uint32_t stages : {2U, 4U}) {
      ToyTraining training;
      training.optimizer = adam();
      const ir::Schedule schedule =
          compiled(policy.policy, stages, 2, count(training), policy.options);
      const std::vector<torch::Tensor> first = trained(schedule, training, On::Inline);
      CAPTURE(name_of(policy));
      CAPTURE(stages);
      CHECK(same_bits(trained(schedule, training, On::Cpu), first));
      CHECK(same_bits(trained(schedule, training, On::Cpu), first));
      training.seed = 8;
      CHECK_FALSE(same_bits(trained(schedule, training, On::Inline), first));
    }
  }
}

TEST_CASE("every policy: a learning rate of 0 leaves the weights as they are (P13)") {
  for (const PolicyCase& policy : kPolicies) {
    for (nn::OptimizerConfig optimizer : {adam(), sgd(0.9)}) {
      ToyTraining training;
      training.optimizer = optimizer;
      training.optimizer.learning_rate = 0.0;
      CAPTURE(name_of(policy));
      const auto toy =
          toy_run(compiled(policy.policy, 4, 2, count(training), policy.options), training);
      const std::vector<torch::Tensor> before = weights_of(*toy->run);
      run_all(*toy, training, On::Inline);
      CHECK(same_bits(weights_of(*toy->run), before));
    }
  }
}

TEST_CASE("stages hold at most 3 weight tensors a parameter for xpipe, D - k for pipedream (P10)") {
  ToyTraining training;
  training.optimizer = adam();
  training.mini_batches.assign(10, 4);  // D - k versions are alive from mini-batch 2 (D - 1) on
  for (const std::uint32_t stages : {1U, 2U, 4U, 5U}) {
    CAPTURE(stages);
    for (const std::uint32_t micro_batches : {1U, 2U, 4U}) {
      const auto toy = toy_run(compiled("xpipe", stages, micro_batches, count(training)), training);
      run_all(*toy, training, On::Inline);
      for (const nn::Stage& stage : toy->run->stages()) {
        CHECK(stage.weight_storages() <= 3 * stage.weights().size());
      }
    }
    const auto toy = toy_run(compiled("pipedream", stages, 1, count(training)), training);
    run_all(*toy, training, On::Inline);
    for (std::uint32_t k = 0; k < stages; ++k) {
      const nn::Stage& stage = toy->run->stages()[k];
      CHECK(stage.weight_storages() == (stages - k) * stage.weights().size());
      std::set<const void*> storages;
      for (std::uint16_t slot = 0; slot < toy->schedule.stages[k].slots; ++slot) {
        for (const torch::Tensor& weight : stage.weights(ir::SlotId{slot})) {
          storages.insert(weight.data_ptr());
        }
      }
      CHECK(storages.size() == stage.weight_storages());
    }
  }
}

/// Copies of the weights that each pass of a run read.
struct Recording {
  /// By (stage, micro-batch), forward then backward.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<torch::Tensor>> read[2];
  /// By (stage, mini-batch): the gradients just before the step.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<torch::Tensor>> gradients;
};

std::vector<torch::Tensor> copies(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copied;
  for (const torch::Tensor& tensor : tensors) {
    copied.push_back(tensor.clone());
  }
  return copied;
}

HandlerTable recording_handlers(nn::TrainingRun& run, Recording& into) {
  HandlerTable table = run.handlers();
  for (const ir::TaskKind kind :
       {ir::TaskKind::Forward, ir::TaskKind::Backward, ir::TaskKind::Step}) {
    executor::Handler& handler = table[static_cast<std::size_t>(kind)];
    handler = [&run, &into, handler](const ir::Schedule& schedule, ir::TaskId id) {
      const ir::Task& task = schedule.task(id);
      const std::uint32_t k = index_of(task.stage);
      const nn::Stage& stage = run.stages()[k];
      if (const ir::WeightRead* weights = ir::weights_read(task)) {
        const bool forward = task.kind() == ir::TaskKind::Forward;
        into.read[forward ? 0 : 1][{k, index_of(*ir::micro_batch_of(task))}] =
            copies(stage.weights(weights->slot));
      } else {
        into.gradients[{k, index_of(std::get<ir::Step>(task.payload).mini_batch)}] =
            copies(stage.gradients());
      }
      return handler(schedule, id);
    };
  }
  return table;
}

TEST_CASE(
    "a recorded run replayed with the weights it read gives its gradients, bit for bit (P16)") {
  constexpr std::uint32_t kStages = 4;
  const nn::IntraOpThreads one(1);
  for (const PolicyCase& policy : kPolicies) {
    ToyTraining training;
    training.optimizer = adam();
    training.segments = 1;
    const auto toy =
        toy_run(compiled(policy.policy, kStages, 2, count(training), policy.options), training);
    Recording recorded;
    const ir::Status status =
        run_segment(*toy, training, 0, recording_handlers(*toy->run, recorded), On::Inline);
    REQUIRE(status.ok());
    const std::uint32_t t = toy->schedule.micro_batches;
    const nn::Model model = toy_model(training.seed, training.dtype);
    std::vector<torch::Tensor> leaves = nn::parameters_of(model.layers);
    const auto load = [&](int pass, std::uint32_t j) {
      std::size_t p = 0;
      for (std::uint32_t k = 0; k < kStages; ++k) {
        for (const torch::Tensor& weight : recorded.read[pass].at({k, j})) {
          leaves[p++].data().copy_(weight);
        }
      }
      REQUIRE(p == leaves.size());
    };
    const nn::Segment segment = toy_segment(training, 0);
    for (std::uint32_t i = 0; i < count(training); ++i) {
      for (std::uint32_t part = 0; part < t; ++part) {
        const nn::SampleRange range = nn::micro_batch_range(segment.mini_batches[i], t, part);
        load(0, i * t + part);
        torch::Tensor x = nn::gather(toy->samples.inputs, segment.order, range);
        for (const nn::Layer& layer : model.layers) {
          torch::nn::Sequential module = layer.module;
          x = module->forward(x);
        }
        const torch::Tensor loss =
            torch::nn::functional::cross_entropy(
                x, nn::gather(toy->samples.labels, segment.order, range)) *
            (static_cast<double>(range.count) / segment.mini_batches[i].count);
        load(1, i * t + part);
        loss.backward();
      }
      std::vector<torch::Tensor> expected;
      std::vector<torch::Tensor> got;
      for (torch::Tensor& leaf : leaves) {
        expected.push_back(leaf.grad().clone());
        leaf.mutable_grad().reset();
      }
      for (std::uint32_t k = 0; k < kStages; ++k) {
        for (const torch::Tensor& gradient : recorded.gradients.at({k, i})) {
          got.push_back(gradient);
        }
      }
      CAPTURE(name_of(policy));
      CAPTURE(i);
      CHECK(same_bits(got, expected));
    }
  }
}

TEST_CASE(
    "xpipe: micro-batches of a mini-batch read bit-equal copies; predictions are two at most "
    "(P10)") {
  ToyTraining training;
  training.optimizer = adam();
  training.segments = 1;
  constexpr std::uint32_t kMicroBatches = 4;
  const auto toy = toy_run(compiled("xpipe", 4, kMicroBatches, count(training)), training);
  Recording recorded;
  const ir::Status status =
      run_segment(*toy, training, 0, recording_handlers(*toy->run, recorded), On::Inline);
  REQUIRE(status.ok());
  for (const auto& pass : recorded.read) {
    for (const auto& [place, weights] : pass) {
      const auto& [k, j] = place;
      CHECK(same_bits(weights, pass.at({k, j / kMicroBatches * kMicroBatches})));
    }
  }
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> predictions;
  for (const ir::Task& task : toy->schedule.tasks) {
    if (const auto* predict = std::get_if<ir::Predict>(&task.payload)) {
      CHECK(++predictions[{index_of(task.stage), index_of(predict->mini_batch)}] <= 2);
    }
  }
  CHECK(!predictions.empty());
}

}  // namespace
}  // namespace xpipe::tests
