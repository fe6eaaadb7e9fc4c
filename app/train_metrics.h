// The records of `train --metrics`: JSON lines, one a mini-batch and one an epoch (design.md §8).
#pragma once

#include <string>
#include <vector>

#include "executor/torch/trainer.h"
#include "ir/schedule.h"

namespace xpipe::app {

/// All lines of a run, each ended: an epoch's mini-batches, then the epoch. The records of an epoch
/// also say which policy, options, sizes and seed they belong to.
[[nodiscard]] std::string metrics_lines(const executor::nn::TrainConfig& config,
                                        const ir::Schedule& schedule,
                                        const executor::nn::TrainResult& result);

}  // namespace xpipe::app
