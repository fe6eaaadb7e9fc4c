// The rules of a trace that hold between events: slices of one thread nest (trace-5), names exist
// (trace-6), arrows hang on slices (trace-7). Part of traces/trace_validator.h, which feeds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/ids.h"
#include "ir/strict_json.h"

namespace xpipe::traces {

/// (pid, tid).
using Thread = std::pair<std::int64_t, std::int64_t>;

/// "/traceEvents/12".
[[nodiscard]] std::string event_path(std::size_t event);

class TrackCheck {
 public:
  void slice(Thread thread, ir::Nanos start, ir::Nanos end, std::size_t event);
  void begin(Thread thread, ir::Nanos time, std::size_t event);
  void end(Thread thread, ir::Nanos time, std::size_t event, ir::JsonFaults& faults);

  /// One end of an arrow; `key` is what joins the ends, `phase` one of s, t, f.
  void flow(const std::string& key, char phase, Thread thread, ir::Nanos time, std::size_t event);

  void use(Thread thread, std::size_t event) { used_threads_.try_emplace(thread, event); }

  void use_process(std::int64_t pid, std::size_t event) { used_processes_.try_emplace(pid, event); }

  void name(Thread thread) { named_threads_[thread] = true; }

  void name_process(std::int64_t pid) { named_processes_[pid] = true; }

  /// Adds every fault between the events given. Call it once, last.
  void finish(ir::JsonFaults& faults);

 private:
  struct Slice {
    ir::Nanos start = 0;
    ir::Nanos end = 0;
    std::size_t event = 0;
  };

  struct FlowEnd {
    Thread thread;
    ir::Nanos time = 0;
    std::size_t event = 0;
    bool enclosed = false;
  };

  struct Flow {
    std::size_t first_event = 0;
    std::vector<std::size_t> starts;  ///< into ends_
    std::vector<std::size_t> finishes;
  };

  struct Track {
    std::vector<Slice> slices;
    std::vector<Slice> open;         ///< B without E so far
    std::vector<std::size_t> flows;  ///< into ends_
  };

  void check_track(Track& track, ir::JsonFaults& faults);
  void check_names(ir::JsonFaults& faults) const;
  void check_flows(ir::JsonFaults& faults) const;

  std::map<Thread, Track> tracks_;
  std::map<std::string, Flow> flows_;
  std::vector<FlowEnd> ends_;
  std::map<Thread, std::size_t> used_threads_;  ///< with the first event that uses it
  std::map<std::int64_t, std::size_t> used_processes_;
  std::map<Thread, bool> named_threads_;
  std::map<std::int64_t, bool> named_processes_;
};

}  // namespace xpipe::traces
