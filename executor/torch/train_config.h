// What a training run is asked for, whatever the policy: plain values, no torch, so that app/
// compiles fast. The policy's part (order, versions, distances) is in the schedule.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "executor/torch/checkpoint_config.h"
#include "executor/torch/compute_config.h"
#include "executor/torch/data_options.h"
#include "executor/torch/learning_rate.h"
#include "executor/torch/train_recipe.h"
#include "ir/status.h"
#include "scheduler/optimizer_state.h"

namespace xpipe::executor::nn {

enum class OptimizerKind : std::uint8_t { Sgd, Adam, AdamW, RmsProp };

/// LibTorch's optimizers, with its defaults. Nesterov, AMSGrad and centering are off.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::Adam;
  double learning_rate = 1e-3;  ///< what `schedule` begins with
  double momentum = 0.0;        ///< sgd, rmsprop
  double weight_decay = 0.0;    ///< added to the gradient; adamw: decoupled
  double beta1 = 0.9;           ///< adam, adamw
  double beta2 = 0.999;         ///< adam, adamw
  double alpha = 0.99;          ///< rmsprop
  double eps = 1e-8;            ///< adam, adamw, rmsprop
  LearningRateSchedule schedule;
};

/// Divisors of the moments in Adam's predictions (methods.md 1.4).
enum class BiasCorrection : std::uint8_t {
  Standard,  ///< 1 - beta^t
  Literal,   ///< 1 - beta, as XPipe's paper prints it
};

/// The step that a prediction takes for every step to come.
using scheduler::Extrapolation;

struct PredictionForm {
  Extrapolation extrapolation = Extrapolation::OptimizerStep;
  BiasCorrection bias = BiasCorrection::Standard;
  double gamma = 0.9;  ///< of the moving average: v = gamma v + (1 - gamma) g

  bool operator==(const PredictionForm&) const = default;
};

enum class TrainDevice : std::uint8_t {
  Inline,  ///< InlineBackend: every task at once, in the caller's thread; the reference
  Cpu,     ///< CpuBackend: a thread a device
  Cuda,    ///< GpuBackend: a stream a lane; TrainConfig::compute says which GPUs
};

struct TrainConfig {
  std::string model = "lenet5";
  std::map<std::string, std::string> model_options;  ///< model_options.h
  std::string data;                                  ///< folder or file, told by content
  DataOptions data_options;
  std::uint32_t stages = 1;
  std::vector<std::uint32_t> partition;  ///< layers a stage; empty: balanced by arithmetic
  std::uint32_t micro_batches = 1;       ///< T as asked for, also where the policy runs with 1
  std::uint32_t batch_size = 64;         ///< samples of a mini-batch
  std::uint32_t epochs = 1;
  OptimizerConfig optimizer;
  Recipe recipe;
  CheckpointConfig checkpoint;
  /// What the policy predicts from: scheduler::Policy::extrapolation.
  Extrapolation extrapolation = Extrapolation::OptimizerStep;
  /// Absent: as the schedule's options `bias` and `gamma` have it.
  std::optional<BiasCorrection> bias;
  std::optional<double> gamma;
  ComputeConfig compute;
  std::uint64_t seed = 0;              ///< of weights and order of samples
  std::uint32_t intra_op_threads = 1;  ///< of the evaluation, and of each stage
  /// For the backend that the caller makes; the trainer looks at neither.
  TrainDevice device = TrainDevice::Cpu;
  std::chrono::milliseconds time_out{300'000};  ///< of any wait
  bool stop_on_nan = true;
  std::uint32_t prediction_error_every = 0;  ///< mini-batches; 0: off
  std::optional<std::uint32_t> trace_epoch;  ///< its timeline is kept; absent: the last one's
};

/// Everything that is wrong with the numbers of `config`, as Usage. Model and data are looked at
/// by Trainer::create().
[[nodiscard]] ir::Status check_config(const TrainConfig& config);

/// "sgd", "adam", "adamw", "rmsprop". Errors: Usage, naming them and the nearest.
[[nodiscard]] ir::Result<OptimizerKind> optimizer_kind_from(std::string_view name);
[[nodiscard]] std::string_view optimizer_name(OptimizerKind kind);

}  // namespace xpipe::executor::nn
