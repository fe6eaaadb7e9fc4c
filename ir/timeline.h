// A timeline: who did what when, planned by the simulator or measured by the executor. Both write
// it, traces/ reads it; it holds times only, the meaning of a task stays in the schedule.
#pragma once

#include <vector>

#include "ir/ids.h"

namespace xpipe::ir {

/// [start, end) of one task, relative to the start of the segment.
struct Span {
  TaskId task{};
  Nanos start = 0;
  Nanos end = 0;

  bool operator==(const Span&) const = default;
};

struct Timeline {
  bool measured = false;    ///< false: planned on a cost model
  std::vector<Span> spans;  ///< indexed by TaskId: spans[i].task == TaskId(i), one per task

  bool operator==(const Timeline&) const = default;
};

/// The last end; 0 for an empty timeline. (Timelines start at 0.)
[[nodiscard]] Nanos makespan(const Timeline& timeline);

}  // namespace xpipe::ir
