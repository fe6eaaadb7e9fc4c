// Reads one of our own Chrome traces back: the schedule, who did what when, and what the trace says
// of itself. The exact inverse of traces/chrome_trace.h; arrows and counters are for viewers and
// are not read.
#pragma once

#include <string_view>

#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/timeline.h"
#include "traces/chrome_trace.h"

namespace xpipe::traces {

struct TimelineFile {
  TraceInfo info;
  ir::Schedule schedule;  ///< readable, not yet legal: ir/validate.h
  ir::Timeline timeline;

  bool operator==(const TimelineFile&) const = default;
};

/// True when `text` looks like one of our traces (its head names the format), so that a file's kind
/// can be told before it is read in full.
[[nodiscard]] bool is_timeline_file(std::string_view text);

/// Strict: unknown or missing keys, wrong types, a slice that contradicts itself (its name, its
/// args, its times in µs and in ns), a task twice or never, two tasks of one lane at once are
/// refused. Errors: BadInput, every fault with its JSON path, or line and column where it is not
/// JSON. `file` names the source in messages ("" for none).
[[nodiscard]] ir::Result<TimelineFile> read_timeline(std::string_view text,
                                                     std::string_view file = "");

}  // namespace xpipe::traces
