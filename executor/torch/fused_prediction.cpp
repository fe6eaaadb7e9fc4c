#include "executor/torch/fused_prediction.h"

#include <cstdint>
#include <span>
#include <vector>

namespace xpipe::executor::nn {

PredictionKernel cpu_prediction_kernel() {
  return [](std::span<const PredictedTensor> tensors, PredictionTypes types) {
    const std::vector<PredictionChunk> chunks = prediction_chunks(tensors, kCpuPredictionChunk);
    constexpr std::int64_t kAtLeast = 4;  // chunks a thread: 256 Ki numbers are worth waking one
    at::parallel_for(0, static_cast<std::int64_t>(chunks.size()), kAtLeast,
                     [&](std::int64_t begin, std::int64_t end) {
                       const auto own = std::span(chunks).subspan(
                           static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
                       predict_on_cpu(tensors, own, types);
                     });
  };
}

Number number_of(torch::Dtype type) {
  switch (type) {
    case torch::kFloat32:
      return Number::Float32;
    case torch::kFloat64:
      return Number::Float64;
    case torch::kBFloat16:
      return Number::BFloat16;
    case torch::kFloat16:
      return Number::Float16;
    default:
      TORCH_CHECK(false, "weights of type ", type, " cannot be predicted");
  }
}

const void* memory_of(const torch::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous(), "a prediction reads a tensor that is not contiguous");
  return tensor.const_data_ptr();
}

}  // namespace xpipe::executor::nn
