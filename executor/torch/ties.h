// Weights that several layers share, such as the token embedding and the head of a language model.
//
//   both layers in one stage     one tensor: its gradient is the sum by itself
//   in different stages          a tensor in each, equal at the start; their gradients must be
//                                summed before each step, then all step alike and stay equal
//
//   stage 0: embedding.weight [vocabulary, width] <--- tie ---> stage 2: head.weight
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include "executor/torch/model.h"

namespace xpipe::executor::nn {

/// A module whose weight may be replaced: what a tie can be cut at. A layer that takes part in a
/// tie derives its module from this, too.
class TieableWeight {
 public:
  TieableWeight() = default;
  TieableWeight(const TieableWeight&) = default;
  TieableWeight(TieableWeight&&) = default;
  TieableWeight& operator=(const TieableWeight&) = default;
  TieableWeight& operator=(TieableWeight&&) = default;
  virtual ~TieableWeight() = default;

  [[nodiscard]] virtual const torch::Tensor& tieable_weight() const = 0;
  /// `weight` becomes the module's parameter, the tensor itself. Requires: the same shape.
  virtual void set_tieable_weight(torch::Tensor weight) = 0;
};

/// One stage's tensor of a tie: weights()[parameter] of stage `stage`.
struct StageParameter {
  std::size_t stage = 0;
  std::size_t parameter = 0;

  bool operator==(const StageParameter&) const = default;
};

/// The ties of `model` that a partition cuts, each with its stages in ascending order: those whose
/// gradients have to be summed. Requires: cut() by `partition` has been done.
[[nodiscard]] std::vector<std::vector<StageParameter>> ties_across_stages(
    const Model& model, const std::vector<std::uint32_t>& partition);

/// Gives every stage but the first of a tie a tensor of its own. cut() calls it.
void part_ties(const Model& model, const std::vector<std::uint32_t>& partition);

}  // namespace xpipe::executor::nn
