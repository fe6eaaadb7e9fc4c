// How `xpipe plan` shows what it found.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/plan_search.h"
#include "app/workload.h"

#include "ir/status.h"

namespace xpipe::app {

struct PlanReport {
  const Workload& workload;                 ///< what was asked about; its cut is of no meaning
  const PlanOutcome* outcome = nullptr;     ///< absent where nothing could be simulated
  const PipedreamCut* pipedream = nullptr;  ///< for Search::Pipedream
  std::vector<std::string> notes;
};

/// For people: the plan, its stages, what limits it, the runner-ups.
[[nodiscard]] std::string plan_text(const PlanReport& report);

/// `"format": "xpipe.plan"`; the keys are docs/formats.md's.
[[nodiscard]] std::string plan_json(const PlanReport& report);

/// Of a replicated stage, its fullest replica's.
[[nodiscard]] const PeakMemory& stage_memory(const Candidate& plan, std::size_t stage);

/// Nothing fits: the nearest miss, every device that lacks memory, by kind. Requires: a candidate.
[[nodiscard]] ir::Error does_not_fit(const PlanOutcome& outcome);

/// "4.2 GB in weights, 1.1 GB in ...", the largest first.
[[nodiscard]] std::string by_kind_text(const simulator::MemoryBytes& bytes);

}  // namespace xpipe::app
