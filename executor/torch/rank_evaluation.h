// Evaluation and the hash of the weights where the stages are spread over processes: the same
// numbers as in one process, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/peers.h"
#include "executor/torch/evaluate.h"
#include "executor/torch/rank_records.h"
#include "executor/torch/stage.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

/// As evaluate(), batch by batch through the ranks that hold the stages; all ranks get the answer.
/// Activations of at most kBatchesAhead batches are on their way. `stages` holds all stages, those
/// of other ranks without layers.
inline constexpr std::uint32_t kBatchesAhead = 8;
[[nodiscard]] ir::Result<Evaluation> evaluate_over_ranks(Peers& peers,
                                                         const StageOwners& owners,
                                                         const std::vector<Stage*>& stages,
                                                         const SampleSource& samples,
                                                         LossKind loss = LossKind::CrossEntropy);

/// As weights_hash(), passed on from rank to rank; all ranks get it.
[[nodiscard]] ir::Result<std::uint64_t> weights_hash_over_ranks(Peers& peers,
                                                                const StageOwners& owners,
                                                                const std::vector<Stage*>& stages);

}  // namespace xpipe::executor::nn
