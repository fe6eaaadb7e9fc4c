// What one line can say of a run: the keys that `simulate --json` and the records of a sweep have
// in common (docs/formats.md), computed once for both.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/workload.h"
#include <nlohmann/json_fwd.hpp>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "simulator/long_run.h"
#include "simulator/metrics.h"
#include "simulator/staleness.h"
#include "simulator/steady_state.h"

namespace xpipe::app {

/// The largest over all stages.
struct StalenessSummary {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::uint32_t versions_held = 0;
};

[[nodiscard]] StalenessSummary summarize(const std::vector<simulator::StageStaleness>& stages);

struct RunSummary {
  std::string policy;
  std::vector<std::pair<std::string, std::string>> options;
  std::uint32_t stages = 1;
  std::uint32_t devices = 1;
  std::vector<std::uint32_t> partition;
  std::uint32_t micro_batches = 1;
  std::uint32_t asked_micro_batches = 1;  ///< differs for policies of whole mini-batches
  std::uint32_t mini_batches = 1;
  std::uint32_t replayed_mini_batches = 1;  ///< fewer where the rest follows from a proven repeat
  std::uint32_t samples_per_mini_batch = 1;
  std::uint64_t tasks = 0;
  ir::Nanos makespan = 0;
  simulator::SteadyState steady;
  std::optional<double> samples_per_s;  ///< in steady state, else over the whole run
  double bubble_of_total = 0.0;
  double bubble_of_ideal = 0.0;
  double bubble_of_longest = 0.0;
  double exposed_of_total = 0.0;     ///< exposed communication over devices * makespan
  double busiest_utilization = 0.0;  ///< of the busiest device
  ir::Bytes peak_memory = 0;         ///< of the fullest device
  StalenessSummary staleness;
};

/// `metrics` and `peak_memory` are those of the whole run; `asked_micro_batches` is T as it was
/// asked for.
[[nodiscard]] RunSummary summarize(const Workload& workload,
                                   const simulator::LongRun& run,
                                   std::uint32_t asked_micro_batches,
                                   const simulator::Metrics& metrics,
                                   ir::Bytes peak_memory,
                                   const StalenessSummary& staleness);

/// Of all the mini-batches of the run.
[[nodiscard]] simulator::Metrics measure_run(const simulator::LongRun& run);

/// The keys in the order of docs/formats.md.
[[nodiscard]] nlohmann::ordered_json to_json(const RunSummary& summary);

// How tables write numbers.

/// "3,2,1,0"; "7,6,..,1,0" where there are many; "0" where all are alike.
[[nodiscard]] std::string list_text(const std::vector<std::string>& values);
/// "12.3 %".
[[nodiscard]] std::string percent_text(double share);
/// Milliseconds with three decimals, "-" without a steady state.
[[nodiscard]] std::string ms_text(const std::optional<ir::Nanos>& time);
/// "231.4 MB".
[[nodiscard]] std::string bytes_text(ir::Bytes bytes);
/// Four significant digits and no exponent; "-" for none.
[[nodiscard]] std::string rate_text(const std::optional<double>& rate);

}  // namespace xpipe::app
