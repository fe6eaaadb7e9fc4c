// What `xpipe train` writes: the table's head, the metrics, the trace of a run, and one document.
#pragma once

#include <string>

#include "app/train_arguments.h"

#include "executor/torch/trainer.h"
#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::app {

/// What is about to be trained, for people.
[[nodiscard]] std::string head_lines(const executor::nn::TrainConfig& config,
                                     const executor::nn::TrainFacts& facts,
                                     const ir::Schedule& schedule);

/// The records of `--metrics`: JSON lines, an epoch's mini-batches, then the epoch (design.md §8).
/// The records of an epoch also say which policy, options, sizes and seed they belong to.
[[nodiscard]] std::string metrics_lines(const executor::nn::TrainConfig& config,
                                        const ir::Schedule& schedule,
                                        const executor::nn::TrainResult& result);

/// `"format": "xpipe.training"`: sizes, the epochs as in the metrics, and what each stage holds.
[[nodiscard]] std::string training_json(const executor::nn::TrainConfig& config,
                                        const executor::nn::TrainFacts& facts,
                                        const ir::Schedule& schedule,
                                        const executor::nn::TrainResult& result);

/// The traced epoch, of several segments the longest, with counters for weight versions, staleness
/// and memory. Memory is modelled: what the schedule holds at each moment of the run, by the sizes
/// of model and optimizer (and of activations where there is a profile).
[[nodiscard]] ir::Result<std::string> trace_of_run(const TrainRequest& request,
                                                   const executor::nn::TrainFacts& facts,
                                                   const executor::nn::TrainResult& result);

}  // namespace xpipe::app
