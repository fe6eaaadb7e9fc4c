#include "executor/gpu_backend.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "ir/text.h"

namespace xpipe::executor {

namespace {

using ir::DeviceId;
using ir::index_of;
using ir::LaneId;
using ir::Nanos;
using ir::Status;
using ir::TaskId;

/// Events give milliseconds in a float: from 0.25 s on the origin moves along, so that a time is
/// known to 15 ns however long a run is.
constexpr Nanos kOriginReach = 250'000'000;

}  // namespace

GpuBackend::GpuBackend(GpuApi& api, GpuBackendOptions options)
    : api_(api), options_(std::move(options)) {
  XPIPE_CHECK(!options_.device_map.empty() && options_.ahead > 0) << "no GPU, or no task, to run";
}

GpuBackend::~GpuBackend() {
  abandon();
  for (const auto& [gpu, origin] : origins_) {
    api_.destroy(origin.event);
  }
  for (const auto& [gpu, events] : free_) {
    for (const GpuEvent& event : events) {
      api_.destroy(event);
    }
  }
  for (const auto& [place, stream] : streams_) {
    api_.destroy(stream);
  }
}

Nanos GpuBackend::now() const {
  return std::chrono::nanoseconds(Clock::now() - origin_).count();
}

Status GpuBackend::check_map() const {
  ir::Error error{.kind = ir::ErrorKind::Usage, .diagnostics = {}};
  for (std::size_t d = 0; d < options_.device_map.size(); ++d) {
    if (options_.device_map[d] >= api_.gpus()) {
      error.diagnostics.push_back({"no-such-gpu", "--device-map",
                                   "puts device " + std::to_string(d) + " on GPU " +
                                       std::to_string(options_.device_map[d]) +
                                       ", and this machine shows " + std::to_string(api_.gpus()) +
                                       " (0 is the first); several may share one"});
    }
  }
  return error.diagnostics.empty() ? Status() : Status(std::move(error));
}

ir::Result<GpuStream> GpuBackend::stream_of(DeviceId device, std::size_t ordinal) {
  const auto found = streams_.find({device, ordinal});
  if (found != streams_.end()) {
    return found->second;
  }
  const std::uint32_t gpu = options_.device_map[index_of(device) % options_.device_map.size()];
  ir::Result<GpuStream> stream = api_.create_stream(gpu);
  if (stream.ok()) {
    streams_.emplace(std::pair{device, ordinal}, stream.value());
  }
  return stream;
}

ir::Result<GpuEvent> GpuBackend::event_on(std::uint32_t gpu) {
  std::vector<GpuEvent>& free = free_[gpu];
  if (free.empty()) {
    return api_.create_event(gpu);
  }
  const GpuEvent event = free.back();
  free.pop_back();
  return event;
}

Status GpuBackend::begin(const ir::Schedule& schedule) {
  abandon();
  state_.begin_run();
  schedule_ = &schedule;
  gpu_is_broken_ = false;
  states_.assign(schedule.tasks.size(), State::NotLaunched);
  ends_.assign(schedule.tasks.size(), GpuEvent{});
  spans_.assign(schedule.tasks.size(), ir::Span{});
  has_span_.assign(schedule.tasks.size(), false);
  lanes_.clear();
  if (Status status = check_map(); !status.ok()) {
    return status;
  }
  std::map<DeviceId, std::size_t> lanes_seen;
  for (const ir::Lane& lane : schedule.lanes) {
    const ir::Result<GpuStream> stream = stream_of(lane.device, lanes_seen[lane.device]++);
    if (!stream.ok()) {
      return stream.error();
    }
    lanes_.push_back(LaneState{.stream = stream.value()});
  }
  origin_ = Clock::now();
  for (const LaneState& lane : lanes_) {
    if (Status status = find_origin(lane.stream); !status.ok()) {
      return status;
    }
  }
  return {};
}

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

void GpuBackend::wait(LaneId lane, Event event) {
  const State before = states_[index_of(event.task)];
  if (before == State::NotLaunched) {
    return;  // dropped: so will be what comes after it
  }
  LaneState& state = lanes_[index_of(lane)];
  if (before == State::Launched) {
    if (Status status = api_.wait(state.stream, ends_[index_of(event.task)]); !status.ok()) {
      gpu_failed(status, event.task);
    }
  }
  state.waits.push_back(event.task);
}

Event GpuBackend::enqueue(LaneId lane, TaskId task, Work work) {
  LaneState& state = lanes_[index_of(lane)];
  poll_until([&] { return state.launched.size() < options_.ahead; });
  if (!state_.stopping()) {
    if (Status status = launch(state, task, work); !status.ok()) {
      gpu_failed(status, task);
    }
  }
  return {task};
}

Status GpuBackend::launch(LaneState& lane, TaskId task, const Work& work) {
  const ir::Result<GpuEvent> start = event_on(lane.stream.gpu);
  if (!start.ok()) {
    return start.error();
  }
  const ir::Result<GpuEvent> end = event_on(lane.stream.gpu);
  if (!end.ok()) {
    recycle(start.value());
    return end.error();
  }
  // From here on the lane has the events: it gives them back.
  lane.launched.push_back({.task = task,
                           .start = start.value(),
                           .end = end.value(),
                           .waits = std::exchange(lane.waits, {})});
  if (Status status = api_.record(start.value(), lane.stream); !status.ok()) {
    return status;
  }
  current_ = lane.stream;
  if (options_.on_lane) {
    options_.on_lane(lane.stream);
  }
  const Status done = work(task);
  if (!done.ok()) {
    state_.fail(done.error());
  }
  lane.launched.back().succeeded = done.ok();
  ends_[index_of(task)] = end.value();
  states_[index_of(task)] = State::Launched;
  return api_.record(end.value(), lane.stream);
}

void GpuBackend::gpu_failed(const Status& status, TaskId task) {
  ir::Error error = status.error();
  const std::string text = ir::to_text(schedule_->task(task));
  for (ir::Diagnostic& diagnostic : error.diagnostics) {
    diagnostic.where = diagnostic.where.empty() ? text : text + ", " + diagnostic.where;
  }
  state_.fail(std::move(error));
  gpu_is_broken_ = true;
}

Status GpuBackend::note_span(LaneState& lane, const Launched& launched) {
  Origin& origin = origins_[lane.stream.gpu];
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
  lane.last_end = span.end;
  if (launched.succeeded) {
    spans_[index_of(launched.task)] = span;
    has_span_[index_of(launched.task)] = true;
  }
  return {};
}

/// Takes in what has ended on a lane, in the order of the edges.
Status GpuBackend::retire(LaneState& lane) {
  while (!lane.launched.empty()) {
    const Launched& head = lane.launched.front();
    const ir::Result<bool> done = api_.is_done(head.end);
    if (!done.ok()) {
      return done.error();
    }
    if (!done.value()) {
      return {};
    }
    // What it waited for has ended, too, and must have its span first.
    const bool is_first = std::ranges::none_of(
        head.waits, [this](TaskId before) { return states_[index_of(before)] == State::Launched; });
    if (!is_first) {
      return {};
    }
    if (Status status = note_span(lane, head); !status.ok()) {
      return status;
    }
    states_[index_of(head.task)] = State::Done;
    Origin& origin = origins_[lane.stream.gpu];
    recycle(head.start);
    const ir::Result<Nanos> reach = api_.between(origin.event, head.end);
    if (reach.ok() && reach.value() > kOriginReach) {
      recycle(origin.event);
      origin = {.event = head.end, .at = origin.at + reach.value()};
    } else {
      recycle(head.end);
    }
    lane.launched.pop_front();
  }
  return {};
}

/// Whether anything has ended.
bool GpuBackend::retire_all() {
  bool moved = false;
  for (bool moves = true; moves;) {
    moves = false;
    for (LaneState& lane : lanes_) {
      const std::size_t before = lane.launched.size();
      if (Status status = retire(lane); !status.ok()) {
        gpu_failed(status, lane.launched.front().task);
        return moved;
      }
      moves = moves || lane.launched.size() != before;
    }
    moved = moved || moves;
  }
  return moved;
}

bool GpuBackend::is_idle() const {
  return std::ranges::all_of(lanes_, [](const LaneState& lane) { return lane.launched.empty(); });
}

void GpuBackend::poll_until(const std::function<bool()>& enough) {
  constexpr auto kSpin = std::chrono::microseconds(50);
  constexpr auto kNap = std::chrono::microseconds(20);
  Clock::time_point last_move = Clock::now();
  while (!enough() && !gpu_is_broken_) {
    if (retire_all()) {
      last_move = Clock::now();
      continue;
    }
    const auto still = Clock::now() - last_move;
    if (still >= options_.time_out) {
      state_.fail(describe_stall(*schedule_, heads(), options_.time_out.count()));
      gpu_is_broken_ = true;
    } else if (still > kSpin) {
      std::this_thread::sleep_for(kNap);  // nothing else to do: CUDA's own wait has no time-out
    }
  }
}

Status GpuBackend::synchronize() {
  poll_until([this] { return is_idle(); });
  abandon();
  return state_.status();
}

/// Forgets what is still on the streams: after a failure of the GPU, or a time-out.
void GpuBackend::abandon() {
  for (LaneState& lane : lanes_) {
    for (const Launched& launched : lane.launched) {
      api_.destroy(launched.start);
      api_.destroy(launched.end);
    }
    lane.launched.clear();
    lane.waits.clear();
  }
  for (auto& [gpu, origin] : origins_) {
    origin.at = -1;  // the next run finds its own
  }
}

void GpuBackend::stop(ir::Error reason) {
  state_.stop(std::move(reason));
}

std::vector<std::optional<LaneHead>> GpuBackend::heads() {
  std::vector<std::optional<LaneHead>> heads(lanes_.size());
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].launched.empty()) {
      continue;
    }
    const Launched& launched = lanes_[i].launched.front();
    LaneHead head{.task = launched.task, .running = true, .waits_for = std::nullopt};
    for (const TaskId before : launched.waits) {
      if (states_[index_of(before)] == State::Launched) {
        head.running = false;
        head.waits_for = before;
        break;
      }
    }
    heads[i] = head;
  }
  return heads;
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
