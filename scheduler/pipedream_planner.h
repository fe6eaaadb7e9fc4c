// PipeDream's partitioner: cuts a network into stages and replicates each, so that the slowest
// stage or transfer is as fast as possible by the papers' formulas (methods.md 3.2). Two of them
// are kept apart, as they are published apart:
//
//              stage of layers i..j on m machines          transfer into it
//   Code       (T + 4(m-1)/m * P / bw) / m, a sum          2 a / (bw m) / compression, or free
//   Paper      max(T, 4(m-1)/m * P / bw) / m               2 a / bw
//
//   A(j, m) = min over i < j, m' < m of max(A(i, m - m'), stage(i+1..j on m'), transfer after i);
//   A(j, m) = stage(0..j on m) is the base.
//
// (Code counts 2 a / (bw m) for what a stage sends, too, by its own m, but not for the first
// stage.) T: forward and backward of the layers; P: their parameter bytes; a: bytes that leave
// layer i; bw: bytes/s. Code is the repository's optimizer_graph_hierarchical.py: layers are
// antichains, and levels nest (GPUs in machines in racks): a level's unit is the best pipeline of
// the level below. Paper is arXiv 1806.03377, section 3.2, over the same antichains.
//
// Both know nothing of latency, duplex or several links, and price all-reduce by their own formula:
// simulate what they propose. Arithmetic is binary64 over exact integer sums. Of equal plans that
// with fewer stages is taken, then the cut that sends fewer bytes, the earlier cut, and fewer
// machines behind it, every time (the repository's choice varies with where its objects lie).
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ir/status.h"
#include "scheduler/antichains.h"

namespace xpipe::scheduler {

enum class Recurrence : std::uint8_t { Code, Paper };

/// One level of the machine: `units` of the level below, joined by links of this bandwidth.
struct MachineLevel {
  std::uint32_t units = 1;
  double bandwidth_bytes_per_s = 1e9;
};

struct PipedreamRequest {
  std::vector<MachineLevel> levels;  ///< innermost first; at least one
  Recurrence recurrence = Recurrence::Code;
  std::optional<double> compression_ratio;  ///< Code only; without it a cut costs nothing
  bool straight = false;                    ///< no replicas
  bool fewer_machines = false;              ///< may leave machines idle
  /// Bytes a machine may hold: activations and parameters of the stage for each mini-batch that
  /// is in flight, ceil((machines - machines used so far) / m) of them.
  std::optional<double> memory_bytes;
};

/// Antichains first .. end - 1 beyond those before `first`.
struct PipedreamStage {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  std::uint32_t replicas = 1;  ///< over all levels
  double compute_s = 0.0;      ///< of one replica that does all the work

  bool operator==(const PipedreamStage&) const = default;
};

struct PipedreamPlan {
  std::vector<PipedreamStage> stages;
  double pipeline_s = 0.0;  ///< the slowest stage or transfer, per mini-batch
  double one_device_s = 0.0;
  double data_parallel_s = 0.0;
};

/// O(antichains^2 machines^2) on one level, O(antichains^3 machines^2) with several.
/// Requires: what antichains() returns. Errors: Usage for levels of no unit, a bandwidth or ratio
/// that is not positive; Illegal when nothing fits the memory.
[[nodiscard]] ir::Result<PipedreamPlan> pipedream_plan(const std::vector<Antichain>& states,
                                                       const PipedreamRequest& request);

}  // namespace xpipe::scheduler
