// The optimizer of one stage and the weights it foresees. step() is LibTorch's; predict() takes
// the step that it extrapolates, once for every step ahead, from the master weights into a slot.
//
//   W_hat = W - (sum of the learning rates of the steps aimed at) * dW       (methods.md 1.4, 2)
//
//   sgd, momentum   dW = momentum buffer          adam     dW = m_hat / (sqrt(v_hat) + eps)
//   sgd, plain      dW = last gradient            adamw    as adam, + weight_decay * W
//   rmsprop         dW = last gradient / (sqrt(square average) + eps); with momentum its buffer
//   SmoothedGradient:  SGD's momentum buffer, else v = gamma v + (1 - gamma) gradient
//
// A gradient is the one the optimizer uses: with the decay in it where the decay is not decoupled.
// Before the first step there is no history and the prediction is the identity. All of it is one
// pass over the memory (executor/prediction_kernel.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "executor/prediction_kernel.h"
#include "executor/torch/named_tensors.h"
#include "executor/torch/train_config.h"
#include "ir/ids.h"

namespace xpipe::executor::nn {

/// Not thread-safe. Throws what LibTorch throws.
class StageOptimizer {
 public:
  /// `masters` are plain tensors; they are stepped in place. History that only predictions need is
  /// kept only when `predicts`. `kernel` is for the device where they are; none: the CPU's.
  StageOptimizer(const OptimizerConfig& config,
                 const PredictionForm& form,
                 bool predicts,
                 std::vector<torch::Tensor> masters,
                 PredictionKernel kernel = nullptr);
  ~StageOptimizer();
  StageOptimizer(const StageOptimizer&) = delete;
  StageOptimizer& operator=(const StageOptimizer&) = delete;

  /// One step on the masters. Takes over the gradients, by parameter; an undefined one leaves its
  /// parameter as it is.
  void step(std::vector<torch::Tensor> gradients);

  /// Writes into `into`, by parameter, the weights as they should be `distance` steps from now.
  /// Changes nothing else. Requires: plain, contiguous tensors of the masters' shapes and other
  /// memory, each of a type that the kernel has; `predicts`.
  void predict(ir::Distance distance, const std::vector<torch::Tensor>& into) const;

  /// What is stored of a parameter, by name: "exp_avg", "momentum_buffer", "last_gradient", ...;
  /// "step" is a number, the others have the parameter's shape. Empty before its first step.
  [[nodiscard]] NamedTensors parameter_state(std::size_t parameter) const;

  /// Takes copies of what parameter_state() of another optimizer told; what this one does not keep
  /// is passed over, and what it lacks stays as before the first step.
  void set_parameter_state(std::size_t parameter, const NamedTensors& tensors);

  /// Goes on as if `steps` had been made.
  void set_steps(std::uint64_t steps) { steps_ = steps; }

  /// Steps made.
  [[nodiscard]] std::uint64_t steps() const { return steps_; }

  /// Sum of the learning rates of the next `distance` steps.
  [[nodiscard]] double learning_rate_ahead(ir::Distance distance) const;

  /// Everything that is stored beside the masters: moments, and history kept for predictions.
  [[nodiscard]] ir::Bytes state_bytes() const;

  /// All tensors of the state, in one fixed order: to compare two runs.
  [[nodiscard]] std::vector<torch::Tensor> state() const;

 private:
  void remember(std::size_t parameter, const torch::Tensor& gradient);
  void aim_sgd(std::size_t p, PredictedTensor& tensor) const;
  void aim_adam(std::size_t p, PredictedTensor& tensor) const;
  void aim_rmsprop(std::size_t p, PredictedTensor& tensor) const;
  [[nodiscard]] PredictedTensor aimed(std::size_t p,
                                      ir::Distance distance,
                                      torch::Tensor into) const;
  [[nodiscard]] bool has_history(std::size_t parameter) const;
  [[nodiscard]] bool needs_last_gradient() const;
  [[nodiscard]] bool needs_moving_average() const;
  [[nodiscard]] const char* history_name() const;  ///< nullptr: none is kept
  [[nodiscard]] torch::optim::OptimizerParamState* state_of(std::size_t parameter) const;

  OptimizerConfig config_;
  PredictionForm form_;
  bool predicts_ = false;
  PredictionKernel kernel_;
  std::vector<torch::Tensor> masters_;  ///< plain: what predictions read
  std::vector<torch::Tensor> leaves_;   ///< the same memory, with gradients: what LibTorch steps
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<torch::Tensor> history_;  ///< last gradient or moving average; undefined at first
  std::uint64_t steps_ = 0;
};

}  // namespace xpipe::executor::nn
