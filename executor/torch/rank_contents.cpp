#include "executor/torch/rank_contents.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

#include "executor/processes/agreement.h"

namespace xpipe::executor::nn {

namespace {

constexpr std::uint32_t kSpread = 64;
constexpr std::uint32_t kAtOnce = 4096;

/// Of what has been hashed so far and `tensor`.
std::string hash_after(const std::string& so_far, const torch::Tensor& tensor) {
  const torch::Tensor dense = tensor.detach().cpu().contiguous();
  const std::string_view bytes(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  return fingerprint(so_far + fingerprint(bytes));
}

}  // namespace

ir::Result<std::string> samples_fingerprint(const SampleSource& samples) {
  const std::uint32_t count = samples.count();
  std::string hash = std::to_string(count);
  for (std::uint32_t begin = 0; begin < count; begin += kAtOnce) {
    std::vector<std::uint32_t> numbers(std::min(kAtOnce, count - begin));
    std::iota(numbers.begin(), numbers.end(), begin);
    hash = hash_after(hash, samples.label_batch(numbers));
  }
  const std::uint32_t spread = std::min(kSpread, count);
  for (std::uint32_t i = 0; i < spread; ++i) {
    const std::vector<std::uint32_t> one = {
        static_cast<std::uint32_t>(std::uint64_t{i} * count / spread)};
    const ir::Result<torch::Tensor> input = samples.input_batch(0, one);
    if (!input.ok()) {
      return input.error();
    }
    hash = hash_after(hash, input.value());
  }
  return hash;
}

std::string model_fingerprint(const Model& model) {
  std::string hash;
  for (const Layer& layer : model.layers) {
    for (const auto& parameter : layer.module->named_parameters()) {
      hash = hash_after(hash, parameter.value());
    }
    for (const auto& buffer : layer.module->named_buffers()) {
      hash = hash_after(hash, buffer.value());
    }
  }
  return hash;
}

}  // namespace xpipe::executor::nn
