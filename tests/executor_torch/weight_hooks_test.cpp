// The saved-tensor hooks: a backward computes with the slot it names, and nobody else notices.
#include "executor/torch/weight_hooks.h"

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "executor/torch/intra_op_threads.h"
#include "executor/torch/model_builder.h"
#include "executor/torch/stage.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

using nn::BackwardScope;
using nn::ForwardScope;
using nn::WeightSlots;

constexpr ir::SlotId kOther{1};

torch::Tensor forward(const nn::Model& model, const torch::Tensor& input) {
  torch::Tensor x = input;
  for (const nn::Layer& layer : model.layers) {
    torch::nn::Sequential module = layer.module;
    x = module->forward(x);
  }
  return x;
}

std::vector<torch::Tensor> take_gradients(const nn::Model& model, const torch::Tensor& input) {
  std::vector<torch::Tensor> gradients{input.grad().clone()};
  input.mutable_grad().reset();
  for (torch::Tensor& leaf : nn::parameters_of(model.layers)) {
    gradients.push_back(leaf.grad().clone());
    leaf.mutable_grad().reset();
  }
  return gradients;
}

torch::Tensor leaf_input() {
  torch::Tensor input = toy_samples(6, torch::kFloat32).inputs;
  return input.requires_grad_(true);
}

/// Forward on one set of weights, backward on another, written in place: the slow, sure way.
std::vector<torch::Tensor> in_place(const nn::Model& model,
                                    const std::vector<torch::Tensor>& for_backward) {
  const torch::Tensor input = leaf_input();
  std::vector<torch::Tensor> before;
  const torch::Tensor loss = forward(model, input).square().sum();
  std::vector<torch::Tensor> leaves = nn::parameters_of(model.layers);
  for (std::size_t p = 0; p < leaves.size(); ++p) {
    before.push_back(leaves[p].detach().clone());
    leaves[p].data().copy_(for_backward[p]);
  }
  loss.backward();
  for (std::size_t p = 0; p < leaves.size(); ++p) {
    leaves[p].data().copy_(before[p]);
  }
  return take_gradients(model, input);
}

std::vector<torch::Tensor> other_weights() {
  std::vector<torch::Tensor> weights;
  for (const torch::Tensor& leaf : nn::parameters_of(toy_model(2, torch::kFloat32).layers)) {
    weights.push_back(leaf.detach());
  }
  return weights;
}

std::vector<torch::Tensor> by_hooks(const nn::Model& model,
                                    const std::shared_ptr<WeightSlots>& slots,
                                    ir::SlotId slot) {
  const torch::Tensor input = leaf_input();
  torch::Tensor loss;
  {
    const ForwardScope scope(slots);
    loss = forward(model, input).square().sum();
  }
  const BackwardScope scope(*slots, slot);
  loss.backward();
  return take_gradients(model, input);
}

std::shared_ptr<WeightSlots> slots_of(const nn::Model& model,
                                      const std::vector<torch::Tensor>& other) {
  auto slots = std::make_shared<WeightSlots>(nn::parameters_of(model.layers));
  slots->reserve(2);
  for (std::size_t p = 0; p < other.size(); ++p) {
    torch::Tensor(slots->slot(kOther)[p]).copy_(other[p]);
  }
  return slots;
}

TEST_CASE("hooks: forward on one slot and backward on another give the in-place method's bits") {
  const nn::Model model = toy_model(1, torch::kFloat32);
  const std::vector<torch::Tensor> other = other_weights();
  const auto slots = slots_of(model, other);
  const std::vector<torch::Tensor> same = in_place(model, slots->slot(ir::kMasterSlot));
  const std::vector<torch::Tensor> swapped = in_place(model, other);
  CHECK_FALSE(same_bits(same, swapped));
  CHECK(same_bits(by_hooks(model, slots, ir::kMasterSlot), same));
  CHECK(same_bits(by_hooks(model, slots, kOther), swapped));
}

/// On [1, 8, 8]: a residual block with a convolution in its shortcut, a block of two branches, both
/// with batch norms, and a linear layer.
nn::Model branching_model(std::uint64_t seed) {
  constexpr double kEps = 1e-5;
  nn::ModelBuilder builder("branching", {1, 8, 8}, seed);
  nn::Chain residual = builder.next();
  nn::Chain main = residual.branch();
  main.conv_batch_norm(nn::square(4, 3, 2, 1), nn::Init::FanOutNormal, kEps, true);
  main.conv_batch_norm(nn::square(4, 1), nn::Init::FanOutNormal, kEps, false);
  nn::Chain shortcut = residual.branch();
  shortcut.conv_batch_norm(nn::square(4, 1, 2), nn::Init::FanOutNormal, kEps, false);
  residual.residual(main, shortcut);
  builder.add("residual", residual);
  nn::Chain concat = builder.next();
  nn::Chain wide = concat.branch();
  wide.conv_batch_norm(nn::square(3, 3, 1, 1), nn::Init::FanOutNormal, kEps, true);
  nn::Chain pooled = concat.branch();
  pooled.average_pool(3, 1, 1);
  concat.concat({wide, pooled});
  builder.add("concat", concat);
  nn::Chain head = builder.next();
  head.average_pool_to(2);
  head.linear(5, nn::Init::FanInUniform);
  builder.add("head", head);
  return std::move(builder).take();
}

TEST_CASE("hooks: so they do through residual and parallel branches and batch norms") {
  const nn::Model model = branching_model(1);
  std::vector<torch::Tensor> other;
  for (const torch::Tensor& leaf : nn::parameters_of(branching_model(2).layers)) {
    other.push_back(torch::rand_like(leaf) + 0.5);  // batch norms begin alike under every seed
  }
  const auto slots = slots_of(model, other);
  const std::vector<torch::Tensor> same = in_place(model, slots->slot(ir::kMasterSlot));
  const std::vector<torch::Tensor> swapped = in_place(model, other);
  CHECK_FALSE(same_bits(same, swapped));
  CHECK(same_bits(by_hooks(model, slots, ir::kMasterSlot), same));
  CHECK(same_bits(by_hooks(model, slots, kOther), swapped));
}

TEST_CASE("swapping parameters alone mixes versions: why there are hooks") {
  const nn::Model model = toy_model(1, torch::kFloat32);
  const std::vector<torch::Tensor> other = other_weights();
  const std::vector<torch::Tensor> right = in_place(model, other);
  const torch::Tensor input = leaf_input();
  const torch::Tensor loss = forward(model, input).square().sum();
  std::vector<torch::Tensor> leaves = nn::parameters_of(model.layers);
  for (std::size_t p = 0; p < leaves.size(); ++p) {
    leaves[p].set_data(other[p]);
  }
  loss.backward();
  CHECK_FALSE(same_bits(take_gradients(model, input), right));
}

TEST_CASE("hooks: weights saved by a forward are not kept, views of them included") {
  const nn::Model model = toy_model(1, torch::kFloat32);
  const auto slots = slots_of(model, other_weights());
  int weights_kept = 0;
  int activations = 0;
  slots->on_activation_saved = [&](const torch::Tensor& tensor) {
    ++activations;
    weights_kept += slots->parameter_of(tensor) ? 1 : 0;
  };
  const ForwardScope scope(slots);
  const torch::Tensor loss = forward(model, leaf_input()).square().sum();
  CHECK(activations > 0);
  CHECK(weights_kept == 0);
  const std::vector<torch::Tensor>& masters = slots->slot(ir::kMasterSlot);
  CHECK(slots->parameter_of(masters[3].t()) == 4 - 1);
  CHECK(slots->parameter_of(slots->slot(kOther)[2].select(0, 1)) == 2);
  CHECK_FALSE(slots->parameter_of(torch::zeros(3)).has_value());
  CHECK(slots->storages() == 2 * masters.size());
}

TEST_CASE("hooks: a plain user of autograd beside stages is left alone") {
  const nn::Model model = toy_model(1, torch::kFloat32);
  const nn::IntraOpThreads one(1);
  const std::vector<torch::Tensor> expected =
      in_place(model, slots_of(model, other_weights())->slot(ir::kMasterSlot));
  const auto busy = [] {
    nn::set_intra_op_threads(1);
    const nn::Model own = toy_model(1, torch::kFloat32);
    const auto slots = slots_of(own, other_weights());
    const std::vector<torch::Tensor> first = by_hooks(own, slots, kOther);
    bool same = true;
    for (int i = 0; i < 20; ++i) {
      same = same && same_bits(by_hooks(own, slots, kOther), first);
    }
    return same;
  };
  std::atomic<int> right{0};
  std::vector<std::thread> stages;
  for (int i = 0; i < 3; ++i) {
    stages.emplace_back([&] { right += busy() ? 1 : 0; });
  }
  for (int i = 0; i < 20; ++i) {
    const torch::Tensor input = leaf_input();
    forward(model, input).square().sum().backward();  // no scope on this thread
    CHECK(same_bits(take_gradients(model, input), expected));
  }
  for (std::thread& stage : stages) {
    stage.join();
  }
  CHECK(right == 3);
}

TEST_CASE("hooks: a stage's graph refuses a backward that names no slot") {
  const nn::Model model = toy_model(1, torch::kFloat32);
  const auto slots = slots_of(model, other_weights());
  torch::Tensor loss;
  {
    const ForwardScope scope(slots);
    loss = forward(model, leaf_input()).square().sum();
  }
  CHECK_THROWS_WITH(loss.backward(), doctest::Contains("outside of its backward"));
}

TEST_CASE("hooks: an activation changed in place after the forward is noticed") {
  const nn::Model model = toy_model(1, torch::kFloat32);
  const auto slots = slots_of(model, other_weights());
  const torch::Tensor input = toy_samples(6, torch::kFloat32).inputs;
  torch::Tensor loss;
  {
    const ForwardScope scope(slots);
    loss = forward(model, input).square().sum();
  }
  torch::Tensor(input).add_(1.0);
  const BackwardScope scope(*slots, ir::kMasterSlot);
  CHECK_THROWS_WITH(loss.backward(), doctest::Contains("modified in place"));
}

TEST_CASE("weight slots: parameters that share memory are refused") {
  const torch::Tensor whole = torch::zeros({4, 4});
  CHECK_THROWS_AS(WeightSlots({whole, whole.detach()}), std::invalid_argument);
  CHECK_THROWS_AS(WeightSlots({whole[1]}), std::invalid_argument);
  CHECK_THROWS_AS(WeightSlots({whole.t()}), std::invalid_argument);
}

TEST_CASE("stage: a slot that holds something else than the task expects is an internal error") {
  nn::Stage stage(toy_model(1, torch::kFloat32).layers, false, {.predicts = true});
  stage.begin_segment(2);
  const torch::Tensor input = toy_samples(2, torch::kFloat32).inputs;
  const auto code = [&](const ir::WeightRead& read) {
    const auto result = stage.forward(ir::MicroBatch{0}, input, read);
    return result.ok() ? std::string("ok")
                       : result.error().diagnostics.front().code + ": " +
                             result.error().diagnostics.front().message;
  };
  CHECK(code({.version = 0}) == "ok");
  CHECK(code({.version = 1}) ==
        "wrong-weights: slot 0 holds version 0, the task expects version 1");
  CHECK(code({.version = 0, .slot = kOther}) ==
        "wrong-weights: slot 1 holds nothing, the task expects version 0");
  REQUIRE(stage.predict({.version = 0, .into = kOther, .distance = 2}).ok());
  CHECK(code({.version = 0, .slot = kOther, .distance = 2}) == "ok");
  CHECK(code({.version = 0, .slot = kOther}) ==
        "wrong-weights: slot 1 holds version 0 predicted 2 ahead, the task expects version 0");
  REQUIRE(stage.release({.slot = kOther}).ok());
  CHECK(code({.version = 0, .slot = kOther, .distance = 2}) ==
        "wrong-weights: slot 1 holds nothing, the task expects version 0 predicted 2 ahead");
  CHECK_FALSE(stage.step({.version = 3}).ok());
  CHECK_FALSE(stage.backward(ir::MicroBatch{9}, torch::Tensor(), {.version = 0}).ok());
}

}  // namespace
}  // namespace xpipe::tests
