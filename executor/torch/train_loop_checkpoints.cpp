// What a training loop reads and writes: checkpoints, exports, in one process or several.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/torch/checkpoint.h"
#include "executor/torch/rank_checkpoint.h"
#include "executor/torch/train_loop.h"

namespace xpipe::executor::nn {

ir::Status TrainLoop::load(const ResumePoint& from) {
  const std::vector<std::uint32_t>& partition = inputs_.facts.partition;
  return callbacks_.peers == nullptr
             ? load_layers(run_->stages(), options_.replicas, partition, from)
             : load_layers_from_zero(*callbacks_.peers, ranks_, run_->stages(), options_.replicas,
                                     partition, inputs_.facts.layers, from);
}

ir::Status TrainLoop::export_to(const std::string& path) {
  const std::vector<Stage*> stages = run_->first_replicas();
  return callbacks_.peers == nullptr
             ? export_weights(stages, path)
             : export_weights_at_zero(*callbacks_.peers, {ranks_, stages, inputs_.facts.partition},
                                      inputs_.facts.layers, path);
}

ir::Status TrainLoop::gather_model(const Model& model) {
  const std::vector<Stage*> stages = run_->first_replicas();
  return gather_model_at_zero(*callbacks_.peers, {ranks_, stages, inputs_.facts.partition}, model);
}

ir::Result<std::vector<LayerFile>> TrainLoop::write_layers_into(const std::string& begun) {
  const std::vector<Stage*> stages = run_->first_replicas();
  const std::vector<std::uint32_t>& partition = inputs_.facts.partition;
  return callbacks_.peers == nullptr
             ? write_layers(stages, partition, begun)
             : write_layers_at_zero(*callbacks_.peers, {ranks_, stages, partition},
                                    inputs_.facts.layers, begun);
}

/// Of several processes rank 0 has the folder; the others bring their layers.
ir::Status TrainLoop::write_checkpoint(const Position& position, const EpochSums& sums) {
  const CheckpointPlan& plan = inputs_.checkpoints;
  const std::uint64_t trained =
      std::uint64_t{position.epoch} * inputs_.facts.mini_batches + position.mini_batch;
  if (!plan.writes || !checkpoint_due(plan, position, trained, inputs_.config.epochs)) {
    return {};
  }
  std::optional<CheckpointFolder>& folder = inputs_.checkpoints.folder;
  if (!folder) {
    return write_layers_into("").status();
  }
  const ir::Result<std::string> begun = folder->begin(trained);
  if (!begun.ok()) {
    return begun.status();
  }
  ir::Result<std::vector<LayerFile>> layers = write_layers_into(begun.value());
  ir::Status status = layers.status();
  if (status.ok()) {
    status = folder->commit(begun.value(), {.position = position,
                                            .mini_batches = trained,
                                            .steps = run_->steps(),
                                            .epoch = sums,
                                            .fixed = fixed_settings(inputs_.config, inputs_.facts),
                                            .free = free_settings_,
                                            .layers = std::move(layers).value()});
  }
  if (!status.ok()) {
    CheckpointFolder::abandon(begun.value());
  }
  return status;
}

}  // namespace xpipe::executor::nn
