// What a policy emits: for every device its compute operations in order, each with the weights it
// wants to read. No slots, no communication, no lanes: scheduler/compile.h turns a plan into a
// Schedule. A policy builds it with scheduler/plan_builder.h.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/ids.h"
#include "ir/task.h"

namespace xpipe::ir {

/// The weights an operation wants. With `distance` 0 it wants the stage's weights of `version`,
/// wherever they are by then: in the master, or in a stash that the weights pass makes just before
/// a step would overwrite them. With a positive distance it wants the copy that is predicted from
/// `version` for (`copy_mini_batch`, `copy_pass`); every operation that names the same copy reads
/// the same bits, and its first reader is the one that predicts (XPipe's bellwether).
struct WantedWeights {
  Version version = 0;
  Distance distance = 0;
  Pass copy_pass = Pass::Forward;
  MiniBatch copy_mini_batch{};

  bool operator==(const WantedWeights&) const = default;
};

enum class OpKind : std::uint8_t {
  Forward,
  Backward,
  BackwardInput,
  BackwardWeight,
  Recompute,
  Step,
  AllReduce,  ///< sums the gradients over the replicas; before the step of each
  Predict,    ///< makes the copy named here, unless there is one already or nobody reads it
  SumTied,    ///< sums the gradients of weights shared with `peer`; on both stages, before the step
  ClipNorm,   ///< clips by the norm over all stages; on each stage and replica, before the step
};

struct ComputeOp {
  OpKind kind = OpKind::Forward;
  StageId stage{};
  std::uint32_t index = 0;  ///< the micro-batch; else the mini-batch
  WantedWeights weights;    ///< of Step: `version` is the version it steps from
  StageId peer{};           ///< of SumTied

  bool operator==(const ComputeOp&) const = default;
};

struct ComputePlan {
  std::uint32_t micro_batches = 1;  ///< T; 1 for policies whose unit is the whole mini-batch
  std::uint32_t mini_batches = 0;
  std::vector<std::vector<DeviceId>> placement;  ///< by StageId, then replica
  std::vector<std::vector<ComputeOp>> devices;   ///< by DeviceId, in order

  bool operator==(const ComputePlan&) const = default;
};

}  // namespace xpipe::ir
