// A whole training in the calling thread, epochs, evaluations and checkpoints included, of a model
// that is small and has what makes resuming hard: dropout, a batch norm, momentum, a schedule of
// rates.
#pragma once

#include <cstdint>
#include <string>

#include "executor/torch/model.h"
#include "executor/torch/train_config.h"
#include "executor/torch/trainer.h"
#include "ir/status.h"

namespace xpipe::tests {

namespace nn = executor::nn;

/// Four layers of Linear(8, 8) and tanh, in double; `regularized`: each with a dropout, and the
/// third with a batch norm.
[[nodiscard]] nn::Model small_model(std::uint64_t seed, bool regularized);

/// Two epochs of mini-batches of 8, for 2 or 4 stages; T = 2 where the policy has micro-batches.
[[nodiscard]] nn::TrainConfig small_config(const std::string& policy, std::uint32_t stages);

/// Trains small_model() by `config`. 62 samples: seven whole mini-batches and one of 6.
[[nodiscard]] ir::Result<nn::TrainResult> train_small(const std::string& policy,
                                                      const nn::TrainConfig& config,
                                                      const nn::TrainCallbacks& callbacks = {},
                                                      std::uint32_t samples = 62,
                                                      bool regularized = true);

}  // namespace xpipe::tests
