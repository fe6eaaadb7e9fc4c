// What `xpipe train` says while it trains, to people: notes and progress on stderr, the table on
// stdout. With several processes rank 0 speaks.
#pragma once

#include <string>

#include "app/progress.h"

#include "executor/torch/trainer.h"
#include "ir/schedule.h"

namespace xpipe::app {

class TrainReport {
 public:
  /// `speaks`: this process does; `shows`: a table is wanted. What it is given outlives this.
  TrainReport(const executor::nn::TrainConfig& config,
              const executor::nn::TrainFacts& facts,
              const ir::Schedule& schedule,
              bool speaks,
              bool shows);

  /// Before the first step. `pinning`: where threads are, a line; empty: not told.
  void begin(const std::string& pinning) const;

  /// Has mini-batches and epochs told as they end; this outlives the training.
  void follow(executor::nn::TrainCallbacks& callbacks);

  /// Wipes what is drawn.
  void end() { progress_.clear(); }

 private:
  const executor::nn::TrainConfig& config_;
  const executor::nn::TrainFacts& facts_;
  const ir::Schedule& schedule_;
  const bool speaks_;
  const bool shows_;
  Progress progress_;
};

}  // namespace xpipe::app
