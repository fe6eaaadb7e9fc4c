// What if one thing were faster? Each device, stage and link in turn is made so many percent faster
// and the very same schedule is replayed on the changed costs. So it tells what is worth buying,
// which the critical path alone does not: with one wait out of the way the next one decides.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/compiled_run.h"
#include "app/workload.h"

#include "ir/ids.h"
#include "ir/status.h"
#include "scheduler/cost_model.h"
#include "scheduler/stage_costs.h"
#include "simulator/critical_path.h"
#include "simulator/steady_state.h"

namespace xpipe::app {

enum class WhatIfTarget : std::uint8_t {
  Device,           ///< its speed: forwards, backwards and recomputes
  Stage,            ///< the same of one stage, where that is not all that its devices compute
  Link,             ///< bandwidth and latency of one entry of the cluster, both directions
  SharedLink,       ///< the same of a shared link
  Bandwidth,        ///< of every link and shared link
  Latency,          ///< of every link and shared link
  MemoryBandwidth,  ///< of every device: steps, predictions and stash copies
  TaskOverhead,     ///< on every task of every device
};

/// "device", "stage", ... as printed.
[[nodiscard]] std::string_view target_name(WhatIfTarget target);

struct WhatIfRow {
  WhatIfTarget target = WhatIfTarget::Device;
  std::string name;  ///< "device 2 (stage 2)", "link 0<>1", "latency of every link"
  ir::Nanos makespan = 0;
  simulator::SteadyState steady;
  double makespan_speed_up = 0.0;  ///< time before / time after - 1
  std::optional<double> steady_speed_up;
  double path_share = 0.0;  ///< of the makespan, what the critical path spends on it today

  [[nodiscard]] bool makes_a_difference() const {
    return makespan_speed_up != 0.0 || steady_speed_up.value_or(0.0) != 0.0;
  }
};

struct WhatIf {
  double percent = 10.0;
  /// By speed-up in steady state (without one, of the makespan), the largest first.
  std::vector<WhatIfRow> rows;
};

/// The cost model of a workload for the run that is asked about.
using ModelOf = std::function<ir::Result<scheduler::StagedModel>(const Workload&)>;

/// The run as it is.
struct WhatIfBase {
  const Workload& workload;
  const ModelOf& model_of;
  const scheduler::CostModel& costs;
  const ir::Schedule& schedule;         ///< of the mini-batches replayed
  const simulator::CriticalPath& path;  ///< its tasks are the schedule's
  ir::Nanos makespan = 0;
  const simulator::SteadyState& steady;
  bool extrapolate = true;
};

/// `percent` > 0: bandwidths and speeds are multiplied by 1 + percent/100, latencies and overheads
/// divided by it. What there is nothing of (a link without bandwidth and latency) has a row, too.
[[nodiscard]] ir::Result<WhatIf> what_if(CompiledRun& run, const WhatIfBase& base, double percent);

}  // namespace xpipe::app
