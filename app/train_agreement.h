// What the processes of a training must have in common for its bits to be those of one process.
#pragma once

#include "app/train_arguments.h"

#include "executor/processes/agreement.h"
#include "executor/torch/trainer.h"
#include "ir/schedule.h"

namespace xpipe::app {

/// By the names of options where there are some. Settings that checkpoints compare are among them,
/// so that a new one is here by itself (executor::nn::fixed_settings()).
[[nodiscard]] executor::Items items_to_agree(const TrainRequest& request,
                                             const executor::nn::TrainFacts& facts,
                                             const ir::Schedule& schedule);

}  // namespace xpipe::app
