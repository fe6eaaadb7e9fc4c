// Memory over time on each device, by what it is for: from a schedule, its timeline and the sizes
// in the cost model. Planned memory is what must be there at the same time, no allocator's
// rounding.
//
//   weights      the master of each stage on the device, always (a replica has its own)
//   optimizer    its state, always; and the history that predictions need, where a stage predicts
//   slots        each copy from the task that writes it to its last use (simulator/slot_life.h)
//   gradients    one accumulator a stage and step, as large as the parameters: from the start of
//   the
//                first backward that adds to it to the end of the step
//   activations  saved_bytes from the start of a forward to the end of the backward; of a split
//                backward the input part frees all but saved_for_weight_bytes, the weight part the
//                rest. With a recompute kept_bytes up to its start, and recomputed_bytes from there
//                in place of saved_bytes
//   buffers      a message on its sender from the end of the pass that makes it to the end of the
//                send; on its receiver from the start of the send to the end of the pass that uses
//                it. Unknown bytes count as 0.
//   workspace    workspace_bytes while a pass of the stage runs
//
// At one instant what ends is freed before what starts is taken; what starts and ends at that
// instant counts between the two.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/timeline.h"
#include "scheduler/cost_model.h"

namespace xpipe::simulator {

enum class MemoryKind : std::uint8_t {
  Weights,
  Slots,
  Gradients,
  Optimizer,
  Activations,
  Buffers,
  Workspace,
};

inline constexpr std::size_t kMemoryKinds = 7;

/// "weights", "slots", ... as printed.
[[nodiscard]] std::string_view memory_kind_name(MemoryKind kind);

/// Bytes by MemoryKind.
using MemoryBytes = std::array<ir::Bytes, kMemoryKinds>;

/// What is held from `time` on, until the next point.
struct MemoryPoint {
  ir::Nanos time = 0;
  MemoryBytes bytes{};

  bool operator==(const MemoryPoint&) const = default;
};

struct DeviceMemory {
  std::vector<MemoryPoint> curve;  ///< by time, each time once; the last point equals the first
  MemoryBytes peak_by_kind{};      ///< each kind's own peak
  ir::Bytes peak = 0;              ///< of the sum over kinds
  MemoryBytes at_peak{};           ///< by kind, when the sum is at its peak
  ir::Nanos peak_time = 0;         ///< the first time it is reached
};

/// The sum over kinds.
[[nodiscard]] ir::Bytes sum_of(const MemoryBytes& bytes);

/// Whether the whole curve is wanted, or its peaks alone: of a long run it is large.
enum class MemoryCurve : std::uint8_t { Keep, Drop };

/// By DeviceId. What is taken is given back: checked. Requires: a legal schedule, its timeline,
/// check_costs(costs, schedule).ok().
[[nodiscard]] std::vector<DeviceMemory> memory_over_time(const ir::Schedule& schedule,
                                                         const ir::Timeline& timeline,
                                                         const scheduler::CostModel& costs,
                                                         MemoryCurve curve = MemoryCurve::Keep);

/// Micro-batches between their forward and their backward on each stage (of a replicated one: on
/// the replica that has most), at the peak; counted in the order of the lanes, so that it does not
/// depend on times. By StageId.
[[nodiscard]] std::vector<std::uint32_t> peak_in_flight(const ir::Schedule& schedule);

}  // namespace xpipe::simulator
