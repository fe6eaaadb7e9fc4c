// Replays a schedule the plain way, for the tests of policies: who starts when in unit slots, and
// what every slot of every stage holds. Shares no code with policies/, the passes or the simulator;
// it only reads the IR.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/schedule.h"
#include "scheduler/policy.h"

namespace xpipe::tests {

/// One pass of one micro-batch on one stage.
struct PassRead {
  ir::Version version = 0;
  ir::Distance distance = 0;
  ir::SlotId slot{};
  /// The task that wrote the weights (a predict), or, for unpredicted weights, the version: two
  /// reads of one content read the same bits.
  std::string content;
};

struct StageReplay {
  std::vector<char> order;             ///< 'F', 'B' and 'S' (step) in turn
  std::vector<std::uint32_t> indices;  ///< of `order`: micro-batch, or mini-batch of a step
  std::vector<PassRead> forwards;      ///< by micro-batch
  std::vector<PassRead> backwards;     ///< by micro-batch
  std::vector<ir::Version> step_from;  ///< by mini-batch
  std::map<std::uint32_t, std::uint32_t> predicts;  ///< of each mini-batch that has one
  std::uint32_t forward_predicts = 0;
  std::uint32_t backward_predicts = 0;
  std::uint32_t in_flight = 0;      ///< at the peak
  std::uint32_t versions_held = 0;  ///< at the peak, master included
  ir::Version last_version = 0;
  std::vector<std::string> faults;  ///< what the tasks say and the slots do not hold
};

/// Of one replica: what it runs not stays empty. Requires: every replica has one compute lane, on
/// which all its tasks stand.
[[nodiscard]] StageReplay replay_stage(const ir::Schedule& schedule,
                                       std::uint32_t stage,
                                       std::size_t replica = 0);

/// What the schedule does, in the terms of a promise: the largest over the segment, staleness of
/// the weights of micro-batch j being j / T - version.
[[nodiscard]] scheduler::StagePromise measured_promise(const StageReplay& stage,
                                                       std::uint32_t micro_batches);

/// Every pass reads what sequential training with accumulation would read, and gradients are
/// accumulated in ascending order.
[[nodiscard]] bool is_sequential(const StageReplay& stage, std::uint32_t micro_batches);

/// Starts of all tasks when a forward takes `forward`, a backward `backward` and all else nothing.
/// Empty when the tasks wait for each other.
[[nodiscard]] std::vector<std::int64_t> start_slots(const ir::Schedule& schedule,
                                                    std::int64_t forward,
                                                    std::int64_t backward);

[[nodiscard]] std::int64_t makespan_in_slots(const ir::Schedule& schedule,
                                             std::int64_t forward,
                                             std::int64_t backward);

/// The compute lane of `stage` in unit slots as the paper draws it, counted from 0:
/// "0 1 _ |0| 2 |1|", forwards bare, backwards between bars, idle slots as _.
[[nodiscard]] std::string draw(const ir::Schedule& schedule, std::uint32_t stage);

/// The compute lane of `stage` as text tokens with a blank between.
[[nodiscard]] std::string lane_text(const ir::Schedule& schedule, std::uint32_t stage);

/// All policies, as the binary has them.
[[nodiscard]] const scheduler::PolicyRegistry& registry();

/// Compiles `policy` on a chain; fails the running test where that fails.
[[nodiscard]] ir::Schedule compiled(const std::string& policy,
                                    std::uint32_t stages,
                                    std::uint32_t micro_batches,
                                    std::uint32_t mini_batches,
                                    const scheduler::Options& options = {});

}  // namespace xpipe::tests
