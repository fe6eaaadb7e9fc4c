// The loop of Trainer::train(): segment after segment of an epoch, evaluation at its end, records,
// and checkpoints at the borders where one is due.
// What it holds is what tasks refer to, so it stays alive as long as one of them may.
//
//   epoch 0  | segment | segment | evaluate    epoch 1  | segment | ...
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "executor/torch/checkpoint_plan.h"
#include "executor/torch/dataset.h"
#include "executor/torch/rank_records.h"
#include "executor/torch/segments.h"
#include "executor/torch/trainer.h"
#include "executor/torch/training_run.h"

namespace xpipe::executor::nn {

/// Schedules by the shape of their segment; those asked for last are kept.
class ScheduleCache {
 public:
  ScheduleCache(const ScheduleSource& source, const TrainFacts& facts)
      : source_(source), facts_(facts) {}

  /// Valid until kKept other shapes have been asked for. Errors: the source's; Usage
  /// "wrong-schedule".
  [[nodiscard]] ir::Result<const ir::Schedule*> get(std::uint32_t micro_batches,
                                                    std::uint32_t mini_batches);

 private:
  static constexpr std::size_t kKept = 6;

  struct Entry {
    std::uint32_t micro_batches = 0;  ///< as asked for
    std::uint32_t mini_batches = 0;
    ir::Schedule schedule;
  };

  const ScheduleSource& source_;
  const TrainFacts& facts_;
  std::list<Entry> entries_;  ///< the newest first
};

/// What does not change from one training to the next.
struct TrainInputs {
  const TrainConfig& config;
  const TrainFacts& facts;
  const Dataset& data;
  const EpochBatches& batches;
  CheckpointPlan& checkpoints;
};

/// One training. All that its constructor is given must outlive it.
class TrainLoop {
 public:
  TrainLoop(const TrainInputs& inputs,
            const ScheduleSource& source,
            const TrainCallbacks& callbacks);

  /// The layers of each stage, of a model of its own at each call, always with the same weights.
  using MakeLayers = std::function<ir::Result<std::vector<std::vector<Layer>>>()>;

  /// Makes a model for every rank of replicas. Errors: as Trainer::train().
  [[nodiscard]] ir::Result<TrainResult> run(const MakeLayers& make_layers, Backend& backend);

  /// Of several processes, after run(): rank 0's `model` gets what the others have trained.
  [[nodiscard]] ir::Status gather_model(const Model& model);

 private:
  [[nodiscard]] ir::Status plan();
  /// From `from` to the end of its epoch; `sums`: of what was trained before.
  [[nodiscard]] ir::Status train_epoch(const Position& from, EpochSums sums, Backend& backend);
  [[nodiscard]] ir::Status train_segment(const SegmentPlan& segment,
                                         Backend& backend,
                                         std::vector<MiniBatchRecord>& records,
                                         EpochSums& sums);
  [[nodiscard]] ir::Status finish_epoch(std::uint32_t epoch,
                                        const EpochSums& sums,
                                        std::vector<MiniBatchRecord> records);
  /// Rank 0 gets the losses of mini-batches of which others have a part.
  [[nodiscard]] ir::Status complete_losses();
  /// Of the checkpoint that is resumed.
  [[nodiscard]] ir::Status load(const ResumePoint& from);
  [[nodiscard]] ir::Status export_to(const std::string& path);
  [[nodiscard]] ir::Result<std::vector<LayerFile>> write_layers_into(const std::string& begun);
  /// Where one is due.
  [[nodiscard]] ir::Status write_checkpoint(const Position& position, const EpochSums& sums);
  [[nodiscard]] std::vector<SegmentPlan> segments_of(const Position& from) const;

  TrainInputs inputs_;
  const TrainCallbacks& callbacks_;
  ScheduleCache schedules_;
  Settings free_settings_;           ///< of checkpoints
  std::uint32_t micro_batches_ = 1;  ///< T: 1 where the policy's unit is the mini-batch
  RankPlan ranks_;
  RunOptions options_;
  std::unique_ptr<TrainingRun> run_;
  HandlerTable handlers_;
  TrainResult result_;
};

}  // namespace xpipe::executor::nn
