// One run, compiled once and replayed on as many cost models as wanted: what a simulation, a
// what-if and a sweep have in common.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "app/simulate_arguments.h"

#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/timeline.h"
#include "scheduler/compile.h"
#include "scheduler/cost_model.h"
#include "scheduler/stage_graph.h"
#include "simulator/steady_state.h"

namespace xpipe::app {

/// What one replay says.
struct Replayed {
  ir::Timeline timeline;
  simulator::SteadyState steady;
};

/// Not thread-safe.
class CompiledRun {
 public:
  /// Errors: those of scheduler::compile().
  [[nodiscard]] static ir::Result<CompiledRun> compile(const RunRequest& request,
                                                       const scheduler::StageGraph& graph,
                                                       const scheduler::Passes& passes);

  /// A schedule that is there already: it has one length, so no steady state is looked for.
  explicit CompiledRun(ir::Schedule schedule) : schedule_(std::move(schedule)) {}

  /// Whether this is what they would compile to.
  [[nodiscard]] bool is_of(const RunRequest& request,
                           const scheduler::StageGraph& graph,
                           const scheduler::Passes& passes) const;

  [[nodiscard]] const ir::Schedule& schedule() const { return schedule_; }

  [[nodiscard]] ir::Schedule take_schedule() && { return std::move(schedule_); }

  /// Keeps what it compiles on the way for the next replay; for who replays more than once.
  void keep_all() { keeps_ = true; }

  /// Errors: those of check_costs().
  [[nodiscard]] ir::Result<Replayed> replay(const scheduler::CostModel& costs);

 private:
  [[nodiscard]] ir::Result<ir::Nanos> makespan_of(std::uint32_t mini_batches,
                                                  const scheduler::CostModel& costs);

  ir::Schedule schedule_;
  std::optional<RunRequest> request_;  ///< absent for a schedule from a file
  scheduler::StageGraph graph_;
  scheduler::Passes passes_;
  bool keeps_ = false;
  std::map<std::uint32_t, ir::Schedule> longer_;  ///< by mini-batches
};

}  // namespace xpipe::app
