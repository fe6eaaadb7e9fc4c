// Answers the set-ups of a sweep, one line of JSON each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/compiled_run.h"
#include "app/run_summary.h"
#include "app/set_up_parser.h"
#include "app/sweep_axes.h"
#include "app/sweep_inputs.h"
#include "app/workload.h"

#include "ir/status.h"

namespace xpipe::app {

/// What a record of set-up `i` begins with, up to its results: `{"kind":"set-up","set_up":7,
/// "axes":{...}`. The axes are those with several values.
[[nodiscard]] std::string record_head(const SweepAxes& axes, std::uint64_t i);

/// Keeps what one set-up shares with the next: workload, schedule, staleness. The answers do not
/// depend on it. Not thread-safe: one for each thread. The arguments must outlive it.
class SetUpEvaluator {
 public:
  SetUpEvaluator(const SweepAxes& axes, const SweepInputs& inputs) : axes_(axes), inputs_(inputs) {}

  /// The whole record, ended by LF: the results, or what is wrong with this set-up.
  [[nodiscard]] std::string record(std::uint64_t i);

 private:
  [[nodiscard]] ir::Result<RunSummary> evaluate(std::uint64_t i);
  [[nodiscard]] ir::Status set_workload(const std::vector<std::size_t>& values,
                                        const WorkloadArguments& arguments);
  void set_compiled(const RunRequest& request,
                    const scheduler::StageGraph& graph,
                    const scheduler::Passes& passes);

  const SweepAxes& axes_;
  const SweepInputs& inputs_;
  SetUpParser parser_;
  std::vector<std::size_t> workload_values_;  ///< by axis, of workload_
  std::optional<ir::Result<Workload>> workload_;
  std::optional<CompiledRun> compiled_;
  StalenessSummary staleness_;                 ///< of compiled_
  std::optional<std::uint32_t> staleness_of_;  ///< from so many of its mini-batches
};

}  // namespace xpipe::app
