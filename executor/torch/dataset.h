// A labelled data set in memory, as tensors ready for the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "executor/torch/image_files.h"
#include "executor/torch/sample_order.h"

namespace xpipe::executor::nn {

struct Samples {
  torch::Tensor inputs;  ///< [count, channels, height, width], float
  torch::Tensor labels;  ///< [count], int64

  [[nodiscard]] std::uint32_t count() const {
    return static_cast<std::uint32_t>(labels.defined() ? labels.size(0) : 0);
  }
};

struct Dataset {
  std::string kind;
  std::int64_t classes = kClasses;
  Samples train;
  Samples test;
};

/// (pixel / 255 - mean) / deviation by channel, with the constants of the whole training sets:
/// MNIST 0.1307, 0.3081; CIFAR-10 (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616).
[[nodiscard]] Samples normalized(const ImageSet& images, const std::string& kind);
[[nodiscard]] Dataset normalized(const ImageFolder& folder);

/// The rows order[range] of `source`, gathered: one micro-batch's inputs or labels.
[[nodiscard]] torch::Tensor gather(const torch::Tensor& source,
                                   const std::vector<std::uint32_t>& order,
                                   const SampleRange& range);

}  // namespace xpipe::executor::nn
