#include "executor/torch/prediction_probe.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace xpipe::executor::nn {

namespace {

std::vector<torch::Tensor> copies(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copied;
  for (const torch::Tensor& tensor : tensors) {
    copied.push_back(tensor.detach().clone());
  }
  return copied;
}

double squares(const torch::Tensor& tensor) {
  return tensor.to(torch::kFloat64).square().sum().item<double>();
}

}  // namespace

void PredictionProbe::keep(ir::MiniBatch mini_batch,
                           ir::Version version_aimed_at,
                           const std::vector<torch::Tensor>& predicted,
                           const std::vector<torch::Tensor>& from) {
  kept_.push_back({mini_batch, version_aimed_at, copies(predicted), copies(from)});
  ir::Bytes bytes = 0;
  for (const Kept& kept : kept_) {
    for (const torch::Tensor& tensor : kept.predicted) {
      bytes += 2 * static_cast<ir::Bytes>(tensor.nbytes());
    }
  }
  peak_bytes_ = std::max(peak_bytes_, bytes);
}

void PredictionProbe::stepped(ir::Version version, const std::vector<torch::Tensor>& weights) {
  for (const Kept& kept : kept_) {
    if (kept.aimed_at == version) {
      errors_.push_back({kept.mini_batch, relative_distance(kept.predicted, weights),
                         relative_distance(kept.from, weights)});
    }
  }
  std::erase_if(kept_, [version](const Kept& kept) { return kept.aimed_at == version; });
}

std::vector<PredictionError> PredictionProbe::take() {
  kept_.clear();
  return std::exchange(errors_, {});
}

double relative_distance(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  const torch::NoGradGuard no_grad;
  double difference = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += squares(a[i] - b[i]);
    size += squares(b[i]);
  }
  return size > 0.0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

}  // namespace xpipe::executor::nn
