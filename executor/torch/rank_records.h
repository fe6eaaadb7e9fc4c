// What the ranks of a run put together at a drained border: one timeline, one list of records, the
// stages' facts. On rank 0 the result is whole; elsewhere it stays this rank's part. No torch in
// this header.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "executor/peers.h"
#include "executor/torch/trainer.h"
#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/timeline.h"

namespace xpipe::executor::nn {

/// By StageId: the rank that holds the stage (of replicas, the first).
using StageOwners = std::vector<std::uint32_t>;

/// Who holds what. Without peers, rank 0 holds everything.
struct RankPlan {
  StageOwners owners;
  std::vector<std::uint32_t> replicas;  ///< the rank of each, in the order of ir::Replicas
  bool losses_are_apart = false;        ///< replicas of the last stage are on several ranks
};

[[nodiscard]] RankPlan rank_plan(const Peers* peers, const ir::Schedule& schedule);

/// By replica: whether another process holds it; none without peers.
[[nodiscard]] std::vector<bool> replicas_elsewhere(const Peers* peers, const RankPlan& plan);

/// Which devices other processes run; empty where there are none. `peers` must outlive it.
[[nodiscard]] std::function<bool(ir::DeviceId)> remote_devices(const Peers* peers);

/// Clocks are measured and the timelines merged (executor/processes/clocks.h). `timeline` and
/// `began`, the moment of its 0 on this rank's clock, are replaced on rank 0.
[[nodiscard]] ir::Status merge_timeline(Peers& peers,
                                        const ir::Schedule& schedule,
                                        ir::Timeline& timeline,
                                        std::chrono::steady_clock::time_point& began);

/// The loss of one micro-batch of a segment.
struct LossPart {
  std::uint32_t micro_batch = 0;
  std::uint32_t samples = 0;
  double mean = 0.0;
  double correct = 0.0;
};

/// On rank 0 the parts of all other ranks; elsewhere nothing.
[[nodiscard]] ir::Result<std::vector<LossPart>> gather_losses(Peers& peers,
                                                              const std::vector<LossPart>& mine);

/// Prediction errors from each stage's rank; loss and accuracy from the one that has the
/// mini-batch's whole loss, unless rank 0 has it already.
[[nodiscard]] ir::Status merge_records(Peers& peers, std::vector<MiniBatchRecord>& records);

/// Each stage's from the rank that holds it. `probe_bytes` is summed.
[[nodiscard]] ir::Status merge_memory(Peers& peers,
                                      const StageOwners& owners,
                                      std::vector<StageMemory>& memory,
                                      ir::Bytes& probe_bytes);

}  // namespace xpipe::executor::nn
