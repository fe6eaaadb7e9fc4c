// Writes a timeline as a Chrome trace (opens in Perfetto, chrome://tracing, HTA). The trace is the
// timeline file at the same time: it carries the whole schedule and every span in nanoseconds, and
// traces/timeline_file.h reads it back. docs/formats-trace.md describes it for users.
//
//   process "device 0" (pid 1)     thread "compute"    0F0 0F1 ....... 0B0
//                                  thread "send to 1"     0SEND_F0
//   process "device 1" (pid 2)     thread "compute"           1F0 1B0
//
// Source: Chrome's Trace Event Format; Perfetto's slice tracker for what it makes of it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/timeline.h"

namespace xpipe::traces {

inline constexpr int kTraceFormatVersion = 1;

/// What the trace says of itself besides schedule and times. Strings may hold anything: bytes that
/// are not UTF-8 are written as U+FFFD.
struct TraceInfo {
  std::string title;
  /// When the timeline's 0 was, in ns since 1970; 0 for a plan. Times in the trace are relative.
  ir::Nanos base_time_ns = 0;
  /// Configuration, seed, command line, ...: written in this order. Names must differ.
  std::vector<std::pair<std::string, std::string>> facts;
  /// The names of the layers by StageId; empty when the model is not known.
  std::vector<std::vector<std::string>> layers;

  bool operator==(const TraceInfo&) const = default;
};

/// A number that changes over time on one device: memory, weight versions, staleness.
struct CounterSeries {
  std::string name;            ///< "memory"; differs within a device
  std::string unit = "value";  ///< "bytes"
  ir::DeviceId device{};
  std::int64_t base = 0;  ///< the value before the first point
  /// (time, the value from then on); times must not fall.
  std::vector<std::pair<ir::Nanos, std::int64_t>> points;

  bool operator==(const CounterSeries&) const = default;
};

/// The trace; `timeline.measured` tells a run from a plan. The same arguments give the same bytes.
/// A series starts with its base value at 0 and ends with a sample at the makespan.
/// Errors: Internal, naming every task whose span does not fit: a timeline of another schedule,
/// negative times, an end before its start, two tasks of one lane at once.
[[nodiscard]] ir::Result<std::string> chrome_trace(const ir::Schedule& schedule,
                                                   const ir::Timeline& timeline,
                                                   const TraceInfo& info = {},
                                                   const std::vector<CounterSeries>& counters = {});

}  // namespace xpipe::traces
