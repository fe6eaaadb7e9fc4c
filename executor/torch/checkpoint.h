// What a checkpoint keeps of each layer, as tensors: weights, batch norms' statistics, the
// optimizer's moments and what predictions extrapolate from. A layer's file is LibTorch's own
// serialization of a dictionary from name to tensor, which torch.load() of Python reads, too:
//
//   parameter/0.weight          optimizer/0.weight/exp_avg      buffer/1.running_mean
//   parameter/0.bias            optimizer/0.weight/step         buffer/1.num_batches_tracked
//
// Names are those of the layer's module, so neither the stage that held it nor the policy matters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "executor/torch/checkpoint_files.h"
#include "executor/torch/named_tensors.h"
#include "executor/torch/stage.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

/// Everything of layer `layer` of a drained stage; the memory itself.
[[nodiscard]] NamedTensors layer_state(const Stage& stage, std::size_t layer);

/// Its weights and batch norms' statistics alone.
[[nodiscard]] NamedTensors layer_values(const Stage& stage, std::size_t layer);

/// Copies them into the module of a layer. Errors: Internal "wrong-model".
[[nodiscard]] ir::Status set_layer_values(const Layer& layer, const NamedTensors& values);

/// Puts it back. Errors: BadInput "wrong-model", naming each tensor that is missing, of another
/// shape or type, or not the layer's; then nothing has been changed. State of optimizers and
/// predictions that this run keeps and the other did not is left as before the first step.
[[nodiscard]] ir::Status set_layer_state(Stage& stage,
                                         std::size_t layer,
                                         const NamedTensors& tensors,
                                         std::string_view file);

/// Errors: Runtime "torch-failed", BadInput "checkpoint-damaged": what LibTorch says.
[[nodiscard]] ir::Result<std::string> tensors_to_bytes(const NamedTensors& tensors,
                                                       std::string_view file);
[[nodiscard]] ir::Result<NamedTensors> tensors_from_bytes(std::string_view bytes,
                                                          std::string_view file);

/// Writes the layers that `stages` (a replica of each) hold into the begun checkpoint; a stage
/// without layers is another process's. `partition`: layers of each stage. Errors: Runtime.
[[nodiscard]] ir::Result<std::vector<LayerFile>> write_layers(
    const std::vector<Stage*>& stages,
    const std::vector<std::uint32_t>& partition,
    const std::string& begun);

/// Whether layer `index` of the checkpoint has the name `name`. Errors: BadInput "wrong-model".
[[nodiscard]] ir::Status check_layer_name(std::size_t index,
                                          const std::string& name,
                                          const ResumePoint& from);

/// Puts the bytes of the checkpoint's layer `index` into layer `layer` of `stage`. Requires:
/// check_layer_name(). Errors: BadInput.
[[nodiscard]] ir::Status load_layer(Stage& stage,
                                    std::size_t layer,
                                    std::size_t index,
                                    const ResumePoint& from,
                                    const std::string& bytes);

/// Loads the layers that `stages` hold, all replicas of stage 0 first. `replicas`: of each stage;
/// empty: one each. Batch norms' statistics of all replicas become those of the first. Errors:
/// BadInput.
[[nodiscard]] ir::Status load_layers(std::vector<Stage>& stages,
                                     const std::vector<std::uint32_t>& replicas,
                                     const std::vector<std::uint32_t>& partition,
                                     const ResumePoint& from);

/// Adds a layer's values to what an export holds, "conv1.0.weight".
void add_exported(const std::string& layer, const NamedTensors& values, NamedTensors& all);

/// Weights and buffers of all layers, "conv1.0.weight", written whole to `path` for torch.load().
/// Errors: Runtime.
[[nodiscard]] ir::Status export_weights(const std::vector<Stage*>& stages, const std::string& path);

}  // namespace xpipe::executor::nn
