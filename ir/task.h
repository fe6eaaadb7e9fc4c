// A task: one node of the schedule IR. What a task means (which weights it reads and writes, what
// it predicts or stashes) stands in a typed payload; when it happens is the Timeline's business.
//
// Permitted here: plain values, indices, equality. Not permitted: pointers, callbacks, clocks,
// durations, torch.
//
// Adding a kind: add the payload struct, its place in Payload and TaskKind (same order), and
// follow the compiler: every consumer switches over TaskKind or visits the payload, without a
// default.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "ir/ids.h"

namespace xpipe::ir {

enum class Pass : std::uint8_t { Forward, Backward };

/// The weights that a compute task reads: slot `slot` of its stage, which holds the weights of
/// `version`, predicted `distance` steps ahead (0: as they were). Text: [s1:v2+1].
struct WeightRead {
  Version version = 0;
  SlotId slot = kMasterSlot;
  Distance distance = 0;

  bool operator==(const WeightRead&) const = default;
};

struct Forward {
  MicroBatch micro_batch{};
  WeightRead weights;
  bool operator==(const Forward&) const = default;
};

/// Input and weight gradient together.
struct Backward {
  MicroBatch micro_batch{};
  WeightRead weights;
  bool operator==(const Backward&) const = default;
};

struct BackwardInput {
  MicroBatch micro_batch{};
  WeightRead weights;
  bool operator==(const BackwardInput&) const = default;
};

struct BackwardWeight {
  MicroBatch micro_batch{};
  WeightRead weights;
  bool operator==(const BackwardWeight&) const = default;
};

/// Runs the stage's forward again; reads the slot that its backward reads (design.md §4).
struct Recompute {
  MicroBatch micro_batch{};
  WeightRead weights;
  bool operator==(const Recompute&) const = default;
};

/// Reads the master weights of `version` and the optimizer's moments, writes slot `into` with the
/// weights as they should be `distance` (> 0) steps later. `pass` is the pass the copy is for.
struct Predict {
  MiniBatch mini_batch{};
  Version version = 0;
  SlotId from = kMasterSlot;
  SlotId into = kMasterSlot;
  Distance distance = 0;
  Pass pass = Pass::Forward;
  bool operator==(const Predict&) const = default;
};

/// The optimizer's update: slot 0 goes from `version` to `version` + 1, and the accumulated
/// gradients of `mini_batch` are used up.
struct Step {
  MiniBatch mini_batch{};
  Version version = 0;
  bool operator==(const Step&) const = default;
};

/// Keeps the master weights of `version` in slot `into`. `mini_batch` is the mini-batch whose step
/// would overwrite them.
struct Stash {
  MiniBatch mini_batch{};
  Version version = 0;
  SlotId from = kMasterSlot;
  SlotId into = kMasterSlot;
  bool operator==(const Stash&) const = default;
};

/// Slot `slot` is free after this; `mini_batch` is its last reader.
struct Release {
  MiniBatch mini_batch{};
  SlotId slot = kMasterSlot;
  bool operator==(const Release&) const = default;
};

/// Bytes of a message where they are known; they are compared when both ends carry them.
inline constexpr Bytes kUnknownBytes = -1;

/// All tensors of one micro-batch that go from this stage to stage `peer` (a forward's outputs, or
/// with Pass::Backward their gradients), as one message.
struct Send {
  Bytes bytes = kUnknownBytes;
  MicroBatch micro_batch{};
  StageId peer{};
  Pass pass = Pass::Forward;
  bool operator==(const Send&) const = default;
};

/// The other end of a Send; `peer` is the sending stage.
struct Receive {
  Bytes bytes = kUnknownBytes;
  MicroBatch micro_batch{};
  StageId peer{};
  Pass pass = Pass::Forward;
  bool operator==(const Receive&) const = default;
};

/// Sums the gradients of `mini_batch` over the replicas of the stage, in rank order.
struct AllReduce {
  MiniBatch mini_batch{};
  bool operator==(const AllReduce&) const = default;
};

/// Adds up the gradients of the weights that this stage shares with stage `peer` (a tied
/// embedding): those of the earlier stage, then those of the later one. Both stages have such a
/// task, which names the other, and both get the sum.
struct SumTied {
  MiniBatch mini_batch{};
  StageId peer{};
  bool operator==(const SumTied&) const = default;
};

/// Brings the norms of the gradients of all stages together, and scales this stage's where the norm
/// over all is above the run's limit. Every stage and replica has one before each step.
struct ClipNorm {
  MiniBatch mini_batch{};
  bool operator==(const ClipNorm&) const = default;
};

using Payload = std::variant<Forward,
                             Backward,
                             BackwardInput,
                             BackwardWeight,
                             Recompute,
                             Predict,
                             Step,
                             Stash,
                             Release,
                             Send,
                             Receive,
                             AllReduce,
                             SumTied,
                             ClipNorm>;

/// The same order as Payload.
enum class TaskKind : std::uint8_t {
  Forward,
  Backward,
  BackwardInput,
  BackwardWeight,
  Recompute,
  Predict,
  Step,
  Stash,
  Release,
  Send,
  Receive,
  AllReduce,
  SumTied,
  ClipNorm,
};

inline constexpr std::size_t kTaskKinds = std::variant_size_v<Payload>;
static_assert(kTaskKinds == static_cast<std::size_t>(TaskKind::ClipNorm) + 1);

struct Task {
  Payload payload;
  LaneId lane{};
  StageId stage{};

  [[nodiscard]] TaskKind kind() const { return static_cast<TaskKind>(payload.index()); }

  bool operator==(const Task&) const = default;
};

static_assert(sizeof(Task) <= 32, "a million tasks stay small (design.md §4)");

/// "forward", "backward", "backward-input", ... as printed in tables and JSON.
[[nodiscard]] std::string_view kind_name(TaskKind kind);

/// The weights a compute task reads; nullptr for the other kinds. Points into `task`.
[[nodiscard]] const WeightRead* weights_read(const Task& task);

/// The micro-batch of a compute, send or receive task; nullptr for tasks of a whole mini-batch.
[[nodiscard]] const MicroBatch* micro_batch_of(const Task& task);

/// The mini-batch a task belongs to, given T micro-batches a mini-batch.
[[nodiscard]] MiniBatch mini_batch_of(const Task& task, std::uint32_t micro_batches);

}  // namespace xpipe::ir
