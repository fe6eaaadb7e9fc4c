#include "executor/torch/dropout.h"

#include <ATen/CPUGeneratorImpl.h>

#include "executor/torch/sample_order.h"

namespace xpipe::executor::nn {

namespace {

thread_local const PassKey* current_pass = nullptr;

}  // namespace

PassScope::PassScope(const PassKey& key) : previous_(current_pass), key_(key) {
  current_pass = &key_;
}

PassScope::~PassScope() {
  current_pass = previous_;
}

std::optional<std::uint64_t> pass_seed(std::uint64_t layer) {
  if (current_pass == nullptr) {
    return std::nullopt;
  }
  const std::uint64_t of_pass = mixed_seed(mixed_seed(current_pass->seed, current_pass->mini_batch),
                                           current_pass->micro_batch);
  return mixed_seed(of_pass, layer);
}

KeyedDropoutImpl::KeyedDropoutImpl(double probability, std::uint64_t layer)
    : probability_(probability), layer_(layer) {}

torch::Tensor KeyedDropoutImpl::forward(const torch::Tensor& input) {
  if (!is_training() || probability_ == 0.0) {
    return input;
  }
  const std::optional<std::uint64_t> seed = pass_seed(layer_);
  TORCH_CHECK(seed.has_value(), "a dropout's forward outside of a pass");
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(*seed);
  const double kept = 1.0 - probability_;
  torch::Tensor mask =
      torch::empty(input.sizes(), input.options().device(torch::kCPU).requires_grad(false));
  mask.bernoulli_(kept, generator).div_(kept);
  return input * mask.to(input.device());
}

}  // namespace xpipe::executor::nn
