// A comparison for people and for programs.
#pragma once

#include <string>

#include "traces/compare.h"

namespace xpipe::traces {

/// Tables of plain text, each line ended: the makespans and errors, times by task kind, by stage
/// and kind, where each device lost time, and the tasks that were off most. Times in ms, three
/// decimals.
[[nodiscard]] std::string to_table(const Comparison& comparison);

/// One JSON document (`"format": "xpipe.compare"`), indented, ended by a newline:
///
///   {"format", "version", "policy", "plan": {"kind", "makespan_ns"}, "run": {...}, "tasks",
///    "makespan_ratio", "median_error", "worst_error", "median_priced_error",
///    "by_kind":  [{"kind", "tasks", "planned_ns", "measured_ns", "ratio"}, ...],
///    "by_stage": [{"stage", "tasks", "planned_ns", "measured_ns", "ratio", "by_kind": [...]},
///    ...], "lost":     [{"device", "kind": "compute" | "transfer" | "wait" | "engine", "ns"},
///    ...], "worst_tasks": [{"task", "text", "planned_ns", "measured_ns", "error"}, ...]}
///
/// A ratio or error that does not exist is left out. `lost` has all four kinds of every device.
[[nodiscard]] std::string to_json(const Comparison& comparison);

}  // namespace xpipe::traces
