// How a network can be cut into stages for one policy, one T and one number of stages: what
// `xpipe plan` tries before it simulates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/simulate_arguments.h"
#include "app/workload.h"

#include "ir/profile.h"
#include "ir/status.h"
#include "scheduler/chain_planner.h"
#include "scheduler/partition.h"
#include "scheduler/pipedream_planner.h"
#include "scheduler/policy.h"

namespace xpipe::app {

enum class Search : std::uint8_t {
  Order,       ///< contiguous cuts of the layers in the order of the file
  Antichains,  ///< every cut that the network's edges allow
  Pipedream,   ///< PipeDream's dynamic program, with replicas
};

/// Antichains that are searched; beyond them branches are compressed. Several levels of machines
/// take a power more.
inline constexpr std::size_t kMostAntichains = 2000;
inline constexpr std::size_t kMostAntichainsOnLevels = 500;

struct StageCut {
  ir::Profile profile;  ///< its layers in the order of the stages; that of the file with Order
  scheduler::Partition partition;
  std::vector<std::uint32_t> replicas;  ///< by stage
  bool exact = false;
  std::string reason;                 ///< over what it is exact, or why it is not
  std::vector<ir::Bytes> held_bytes;  ///< by stage, as promised; empty where nobody asked
};

/// What PipeDream's program found, in its own terms.
struct PipedreamCut {
  StageCut cut;
  scheduler::PipedreamPlan plan;
  scheduler::PipedreamRequest request;
  std::size_t antichains = 0;
};

/// Keeps the places to cut, which are the same for all policies. `workload` must outlive it.
class PlanCutter {
 public:
  PlanCutter(const Workload& workload, Search search);

  /// The best cut into `stages` stages, one device each, under `limits`, the memory by stage.
  /// Errors: Usage for more stages than layers, those of stage_terms().
  [[nodiscard]] ir::Result<StageCut> cut(const RunRequest& run,
                                         std::uint32_t stages,
                                         const std::vector<std::optional<ir::Bytes>>& limits) const;

  [[nodiscard]] ir::Result<PipedreamCut> pipedream(
      const scheduler::PipedreamRequest& request) const;

 private:
  [[nodiscard]] StageCut stages_at(const scheduler::ChainPlan& plan) const;

  const Workload& workload_;
  Search search_;
  scheduler::Cuts found_;  ///< not for Order
  std::vector<scheduler::CutPoint> cuts_;
  std::vector<std::vector<std::uint32_t>> after_;
};

/// A cut given by hand, checked. Errors: Usage, naming the layer that is missing or too many.
[[nodiscard]] ir::Result<StageCut> cut_by_hand(const Workload& workload,
                                               const scheduler::Partition& partition);

}  // namespace xpipe::app
