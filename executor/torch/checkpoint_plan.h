// Which checkpoint a training goes on from and which folder its own go to, found and checked before
// anything is trained. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "executor/torch/checkpoint_files.h"
#include "executor/torch/train_config.h"
#include "executor/torch/trainer.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

struct CheckpointPlan {
  std::optional<ResumePoint> resume;
  std::optional<CheckpointFolder> folder;
  bool writes = false;                   ///< checkpoints are; without a folder another process does
  std::uint32_t every_mini_batches = 0;  ///< 0: by epochs. So are the borders of segments.
  std::uint32_t every_epochs = 1;
  std::vector<std::string> notes;  ///< what --force has passed over, for people
};

/// What fixes the numbers of a training; a run that goes on from a checkpoint must have the same.
/// How the model is cut, the policy, the micro-batches and the epochs are not among it.
[[nodiscard]] Settings fixed_settings(const TrainConfig& config, const TrainFacts& facts);

/// The rest, for people.
[[nodiscard]] Settings free_settings(const TrainConfig& config,
                                     const TrainFacts& facts,
                                     const CheckpointPlan& plan,
                                     const ir::Schedule& schedule);

/// Checkpoints of `config.checkpoint`: reads the manifest to resume from and compares its settings,
/// makes the folder to write to, and refuses one that holds another run's. Checks that the export
/// can be written. Errors: BadInput for what cannot be resumed from, each setting that differs with
/// both values; Usage for folders, and when there is nothing left to train.
[[nodiscard]] ir::Result<CheckpointPlan> open_checkpoints(const TrainConfig& config,
                                                          const TrainFacts& facts);

/// Reads "100", mini-batches, or "2epochs", at least 1; false when it is neither.
[[nodiscard]] bool parse_checkpoint_every(std::string_view text, CheckpointConfig& config);

/// Whether a checkpoint is due at `position`, the end of a segment (of an epoch: its end is
/// {epoch + 1, 0}); the end of the training is always one.
[[nodiscard]] bool checkpoint_due(const CheckpointPlan& plan,
                                  const Position& position,
                                  std::uint64_t mini_batches,
                                  std::uint32_t epochs);

}  // namespace xpipe::executor::nn
