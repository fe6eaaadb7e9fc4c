// Measures predictions of one stage: keeps the predicted weights and those predicted from, outside
// of the slots, until the step aimed at has been made, and compares both with what it made.
//
//   predict for mini-batch i, from version v, s ahead      keep W_hat, W_v
//   step from v + s - 1 to v + s                           |W_hat - W| / |W|,  |W_v - W| / |W|
#pragma once

#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include "ir/ids.h"

namespace xpipe::executor::nn {

struct PredictionError {
  ir::MiniBatch mini_batch{};  ///< that the prediction was for
  double predicted = 0.0;
  double unpredicted = 0.0;
};

/// Not thread-safe: used by one stage's tasks.
class PredictionProbe {
 public:
  /// Copies `predicted` and `from`; the step aimed at is the one that makes `version_aimed_at`.
  void keep(ir::MiniBatch mini_batch,
            ir::Version version_aimed_at,
            const std::vector<torch::Tensor>& predicted,
            const std::vector<torch::Tensor>& from);

  /// To be called when the stage's weights have become `version`.
  void stepped(ir::Version version, const std::vector<torch::Tensor>& weights);

  /// What has been measured, in the order of the steps; copies that still wait are dropped.
  [[nodiscard]] std::vector<PredictionError> take();

  /// The most that was held at once, ever.
  [[nodiscard]] ir::Bytes peak_bytes() const { return peak_bytes_; }

 private:
  struct Kept {
    ir::MiniBatch mini_batch{};
    ir::Version aimed_at = 0;
    std::vector<torch::Tensor> predicted;
    std::vector<torch::Tensor> from;
  };

  std::vector<Kept> kept_;
  std::vector<PredictionError> errors_;
  ir::Bytes peak_bytes_ = 0;
};

/// |a - b| / |b|, the 2-norm over all tensors together, in double; |a - b| where b is zero.
[[nodiscard]] double relative_distance(const std::vector<torch::Tensor>& a,
                                       const std::vector<torch::Tensor>& b);

}  // namespace xpipe::executor::nn
