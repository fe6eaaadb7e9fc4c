#include "traces/track_check.h"

#include <algorithm>
#include <tuple>

namespace xpipe::traces {

namespace {

using ir::Nanos;

std::string span_text(Nanos start, Nanos end) {
  return "[" + std::to_string(start) + ", " + std::to_string(end) + ") ns";
}

std::string thread_text(Thread thread) {
  return "pid " + std::to_string(thread.first) + ", tid " + std::to_string(thread.second);
}

}  // namespace

std::string event_path(std::size_t event) {
  return "/traceEvents/" + std::to_string(event);
}

void TrackCheck::slice(Thread thread, Nanos start, Nanos end, std::size_t event) {
  tracks_[thread].slices.push_back({start, end, event});
}

void TrackCheck::begin(Thread thread, Nanos time, std::size_t event) {
  tracks_[thread].open.push_back({time, time, event});
}

void TrackCheck::end(Thread thread, Nanos time, std::size_t event, ir::JsonFaults& faults) {
  Track& track = tracks_[thread];
  if (track.open.empty()) {
    faults.add("trace-5", event_path(event), "this E ends no B of " + thread_text(thread));
    return;
  }
  Slice slice = track.open.back();
  track.open.pop_back();
  if (time < slice.start) {
    faults.add("trace-5", event_path(event),
               "this E is " + std::to_string(slice.start - time) + " ns before its B, " +
                   event_path(slice.event));
    return;
  }
  slice.end = time;
  track.slices.push_back(slice);
}

void TrackCheck::flow(
    const std::string& key, char phase, Thread thread, Nanos time, std::size_t event) {
  Flow& flow = flows_.try_emplace(key, Flow{event, {}, {}}).first->second;
  tracks_[thread].flows.push_back(ends_.size());
  if (phase == 's') {
    flow.starts.push_back(ends_.size());
  } else if (phase == 'f') {
    flow.finishes.push_back(ends_.size());
  }
  ends_.push_back({thread, time, event});
}

void TrackCheck::finish(ir::JsonFaults& faults) {
  for (auto& [thread, track] : tracks_) {
    for (const Slice& open : track.open) {
      faults.add("trace-5", event_path(open.event),
                 "this B of " + thread_text(thread) + " has no E");
    }
    check_track(track, faults);
  }
  check_names(faults);
  check_flows(faults);
}

/// Sweeps over the slices by start with the stack of those that are open, and meets the arrows'
/// ends on the way: which of the open slices was written before them?
void TrackCheck::check_track(Track& track, ir::JsonFaults& faults) {
  std::vector<Slice>& slices = track.slices;
  std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
    return std::tuple(a.start, b.end, a.event) < std::tuple(b.start, a.end, b.event);
  });
  std::sort(track.flows.begin(), track.flows.end(),
            [this](std::size_t a, std::size_t b) { return ends_[a].time < ends_[b].time; });
  std::vector<Slice> stack;
  auto flow = track.flows.begin();
  // Ties the ends of arrows before `time` to the slices that are open there.
  const auto tie_until = [&](bool all, Nanos time) {
    for (; flow != track.flows.end() && (all || ends_[*flow].time < time); ++flow) {
      FlowEnd& end = ends_[*flow];
      end.enclosed = std::any_of(stack.begin(), stack.end(), [&end](const Slice& slice) {
        return slice.start <= end.time && end.time < slice.end && slice.event < end.event;
      });
    }
  };
  for (const Slice& slice : slices) {
    tie_until(false, slice.start);
    while (!stack.empty() && stack.back().end <= slice.start) {
      stack.pop_back();
    }
    if (!stack.empty()) {
      const Slice& outer = stack.back();
      if (slice.end > outer.end) {
        faults.add("trace-5", event_path(slice.event),
                   span_text(slice.start, slice.end) + " overlaps " + event_path(outer.event) +
                       ", " + span_text(outer.start, outer.end) +
                       ", in part: slices of one thread are disjoint or nested");
      } else if (slice.start == outer.start && slice.end > slice.start &&
                 slice.event < outer.event) {
        faults.add("trace-5", event_path(slice.event),
                   span_text(slice.start, slice.end) + " begins with the longer " +
                       event_path(outer.event) + ": the outer one must be written first");
      }
    }
    stack.push_back(slice);
  }
  tie_until(true, 0);
}

void TrackCheck::check_names(ir::JsonFaults& faults) const {
  for (const auto& [pid, event] : used_processes_) {
    if (!named_processes_.contains(pid)) {
      faults.add("trace-6", event_path(event),
                 "pid " + std::to_string(pid) + " has no `process_name`");
    }
  }
  for (const auto& [thread, event] : used_threads_) {
    if (!named_threads_.contains(thread)) {
      faults.add("trace-6", event_path(event), thread_text(thread) + " has no `thread_name`");
    }
  }
}

void TrackCheck::check_flows(ir::JsonFaults& faults) const {
  for (const auto& [key, flow] : flows_) {
    if (flow.starts.size() != 1 || flow.finishes.size() != 1) {
      faults.add("trace-7", event_path(flow.first_event),
                 "flow " + key + " has " + std::to_string(flow.starts.size()) + " s and " +
                     std::to_string(flow.finishes.size()) + " f: expected one of each");
      continue;
    }
    const FlowEnd& start = ends_[flow.starts.front()];
    const FlowEnd& finish = ends_[flow.finishes.front()];
    if (start.time > finish.time) {
      faults.add("trace-7", event_path(finish.event),
                 "flow " + key + " ends at " + std::to_string(finish.time) +
                     " ns, before it starts at " + std::to_string(start.time) + " ns");
    }
  }
  for (const FlowEnd& end : ends_) {
    if (!end.enclosed) {
      faults.add("trace-7", event_path(end.event),
                 "no slice of " + thread_text(end.thread) +
                     " that was written before it is open at " + std::to_string(end.time) + " ns");
    }
  }
}

}  // namespace xpipe::traces
