// One run, compiled as long as need be and replayed on as many cost models as wanted: what a
// simulation, a what-if and a sweep have in common.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "app/simulate_arguments.h"

#include "ir/schedule.h"
#include "ir/status.h"
#include "scheduler/compile.h"
#include "scheduler/cost_model.h"
#include "scheduler/stage_graph.h"
#include "simulator/long_run.h"

namespace xpipe::app {

/// Not thread-safe.
class CompiledRun {
 public:
  /// Nothing is compiled before the first replay.
  CompiledRun(RunRequest request, scheduler::StageGraph graph, scheduler::Passes passes)
      : request_(std::move(request)), graph_(std::move(graph)), passes_(std::move(passes)) {}

  /// A schedule that is there already: it has one length, so no steady state is looked for.
  explicit CompiledRun(ir::Schedule schedule) : schedule_(std::move(schedule)) {}

  /// Whether this is the run of these.
  [[nodiscard]] bool is_of(const RunRequest& request,
                           const scheduler::StageGraph& graph,
                           const scheduler::Passes& passes) const;

  /// Keeps the schedules that it compiles for the next replay; for who replays more than once.
  void keep_all() { keeps_ = true; }

  /// With `extrapolate` only as many mini-batches are replayed as it takes to prove that they
  /// repeat (simulator/long_run.h), else all. Errors: those of scheduler::compile(), check_costs()
  /// and replay_long_run().
  [[nodiscard]] ir::Result<simulator::LongRun> replay(const scheduler::CostModel& costs,
                                                      bool extrapolate);

 private:
  [[nodiscard]] ir::Result<ir::Schedule> compiled(std::uint32_t mini_batches);

  std::optional<RunRequest> request_;     ///< absent for a schedule from a file
  std::optional<ir::Schedule> schedule_;  ///< from a file
  scheduler::StageGraph graph_;
  scheduler::Passes passes_;
  bool keeps_ = false;
  std::map<std::uint32_t, ir::Schedule> kept_;  ///< by mini-batches
};

}  // namespace xpipe::app
