// The gpu backend's times: those of events on a GPU's clock, laid on the host's.
#include <algorithm>
#include <limits>

#include "executor/gpu_backend.h"

namespace xpipe::executor {

using ir::index_of;
using ir::Nanos;
using ir::Status;
using ir::TaskId;

/// Records an event on an idle stream and looks when it is seen to be done: it was done between
/// these two moments. The closest of several pairs counts.
Status GpuBackend::find_origin(GpuStream stream) {
  Origin& best = origins_[stream.gpu];
  if (best.event.handle != nullptr && best.at >= 0) {
    return {};  // of this run
  }
  Nanos closest = std::numeric_limits<Nanos>::max();
  for (int attempt = 0; attempt < 5; ++attempt) {
    const ir::Result<GpuEvent> event = event_on(stream.gpu);
    if (!event.ok()) {
      return event.error();
    }
    const Nanos before = now();
    if (Status status = api_.record(event.value(), stream); !status.ok()) {
      return status;
    }
    for (;;) {
      const ir::Result<bool> done = api_.is_done(event.value());
      if (!done.ok()) {
        return done.error();
      }
      if (done.value()) {
        break;
      }
      if (now() - before > options_.time_out.count()) {
        return ir::make_error(ir::ErrorKind::Runtime, "time-out",
                              "GPU " + std::to_string(stream.gpu),
                              "an event on an idle stream does not end: the GPU hangs, or another "
                              "program keeps it busy");
      }
    }
    const Nanos after = now();
    if (after - before < closest) {
      closest = after - before;
      if (best.event.handle != nullptr) {
        recycle(best.event);
      }
      best = {.event = event.value(), .at = before + closest / 2};
    } else {
      recycle(event.value());
    }
  }
  return {};
}

Status GpuBackend::note_span(LaneState& lane, const Launched& launched) {
  Origin& origin = origins_[lane.stream->gpu];
  const ir::Result<Nanos> start = api_.between(origin.event, launched.start);
  if (!start.ok()) {
    return start.error();
  }
  const ir::Result<Nanos> length = api_.between(launched.start, launched.end);
  if (!length.ok()) {
    return length.error();
  }
  ir::Span span{.task = launched.task, .start = origin.at + start.value(), .end = 0};
  span.end = span.start + length.value();
  // Two GPUs' clocks agree to some microseconds only; what was ordered stays so. A start event is
  // done as soon as the lane is, and the task begins when what it waits for is done, too.
  span.start = std::max(span.start, lane.last_end);
  for (const TaskId before : launched.waits) {
    if (has_span_[index_of(before)]) {
      span.start = std::max(span.start, spans_[index_of(before)].end);
    }
  }
  span.end = std::max(span.end, span.start);
  if (launched.is_arrival) {
    span.start = span.end;
  }
  lane.last_end = span.end;
  if (launched.succeeded) {
    spans_[index_of(launched.task)] = span;
    has_span_[index_of(launched.task)] = true;
  }
  return {};
}

ir::Timeline GpuBackend::timeline() const {
  ir::Timeline timeline{.measured = true, .spans = {}};
  timeline.spans.reserve(spans_.size());
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    if (has_span_[i]) {
      timeline.spans.push_back(spans_[i]);
    }
  }
  return timeline;
}

}  // namespace xpipe::executor
