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

Status GpuBackend::open_stream(LaneState& lane) {
  if (lane.stream) {
    return {};
  }
  const std::pair place{lane.device, lane.ordinal};
  if (const auto found = streams_.find(place); found != streams_.end()) {
    lane.stream = found->second;
  } else {
    const std::uint32_t gpu =
        options_.device_map[index_of(lane.device) % options_.device_map.size()];
    ir::Result<GpuStream> stream = api_.create_stream(gpu);
    if (!stream.ok()) {
      return stream.error();
    }
    streams_.emplace(place, stream.value());
    lane.stream = stream.value();
  }
  return find_origin(*lane.stream);
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
  owners_.clear();
  completed_.reset();
  completions_seen_ = completions_.load();
  aborted_ = false;
  if (Status status = check_map(); !status.ok()) {
    return status;
  }
  std::map<DeviceId, std::size_t> lanes_seen;
  for (const ir::Lane& lane : schedule.lanes) {
    lanes_.push_back({.device = lane.device, .ordinal = lanes_seen[lane.device]++});
  }
  origin_ = Clock::now();
  return {};
}

Status GpuBackend::expect(Event event, const std::string& owner) {
  if (!completed_) {
    completed_ = std::make_unique<std::atomic<bool>[]>(schedule_->tasks.size());
    owners_.resize(schedule_->devices);
  }
  owners_[index_of(schedule_->lane(schedule_->task(event.task).lane).device)] = owner;
  states_[index_of(event.task)] = State::Elsewhere;
  return {};
}

void GpuBackend::complete(Event event) {
  completed_[index_of(event.task)].store(true, std::memory_order_release);
  completions_.fetch_add(1, std::memory_order_release);
}

void GpuBackend::wait(LaneId lane, Event event) {
  lanes_[index_of(lane)].waits.push_back(event.task);
}

Event GpuBackend::enqueue(LaneId lane, TaskId task, Work work) {
  return enqueue_told(lane, task, std::move(work), {});
}

Event GpuBackend::enqueue_told(LaneId lane, TaskId task, Work work, Work tell) {
  LaneState& state = lanes_[index_of(lane)];
  state.pending.push_back({.task = task,
                           .waits = std::exchange(state.waits, {}),
                           .work = std::move(work),
                           .tell = std::move(tell)});
  if (completed_) {
    (void)launch_ready(state);  // synchronize() sees to the rest: lanes do not wait for each other
  } else {
    poll_until([&] { return state.pending.empty(); });
  }
  return {task};
}

/// The first thing that `pending` cannot be launched before.
std::optional<TaskId> GpuBackend::missing(const Pending& pending) const {
  const auto found = std::ranges::find_if(pending.waits, [this](TaskId before) {
    const State state = states_[index_of(before)];
    return state == State::NotLaunched ||
           (state == State::Elsewhere &&
            !completed_[index_of(before)].load(std::memory_order_acquire));
  });
  return found == pending.waits.end() ? std::nullopt : std::optional(*found);
}

/// Whether anything was launched.
bool GpuBackend::launch_ready(LaneState& lane) {
  bool moved = false;
  while (!lane.pending.empty() && lane.launched.size() < options_.ahead && !state_.stopping() &&
         !gpu_is_broken_ && !missing(lane.pending.front())) {
    Pending pending = std::move(lane.pending.front());
    lane.pending.pop_front();
    const TaskId task = pending.task;
    if (Status status = launch(lane, std::move(pending)); !status.ok()) {
      gpu_failed(status, task);
    }
    moved = true;
  }
  return moved;
}

/// Whether the task is one end of a transfer whose other end is on another process's GPU.
bool GpuBackend::meets_another(const Pending& pending) const {
  if (transport_ == nullptr || owners_.empty()) {
    return false;
  }
  const ir::Lane& lane = schedule_->lane(schedule_->task(pending.task).lane);
  return lane.kind != ir::LaneKind::Compute && !owners_[index_of(lane.peer)].empty();
}

Status GpuBackend::launch_waits(const LaneState& lane, const std::vector<TaskId>& waits) {
  for (const TaskId before : waits) {
    if (states_[index_of(before)] == State::Launched) {
      if (Status status = api_.wait(*lane.stream, ends_[index_of(before)]); !status.ok()) {
        return status;
      }
    }
  }
  return {};
}

Status GpuBackend::launch(LaneState& lane, Pending pending) {
  if (Status status = open_stream(lane); !status.ok()) {
    return status;
  }
  const GpuStream stream = *lane.stream;
  if (Status status = launch_waits(lane, pending.waits); !status.ok()) {
    return status;
  }
  const ir::Result<GpuEvent> start = event_on(stream.gpu);
  if (!start.ok()) {
    return start.error();
  }
  const ir::Result<GpuEvent> end = event_on(stream.gpu);
  if (!end.ok()) {
    recycle(start.value());
    return end.error();
  }
  const TaskId task = pending.task;
  const bool meets = meets_another(pending);
  const bool sends = schedule_->task(task).kind() == ir::TaskKind::Send;
  Work word = std::move(pending.tell);
  // From here on the lane has the events: it gives them back.
  lane.launched.push_back({.task = task,
                           .start = start.value(),
                           .end = end.value(),
                           .waits = std::move(pending.waits),
                           .tell = meets && sends ? Work() : word,
                           .is_arrival = meets && !sends});
  if (Status status = api_.record(start.value(), stream); !status.ok()) {
    return status;
  }
  current_ = stream;
  if (options_.on_lane) {
    options_.on_lane(stream);
  }
  const Status done = pending.work(task);
  if (!done.ok()) {
    state_.fail(done.error());
  }
  lane.launched.back().succeeded = done.ok();
  ends_[index_of(task)] = end.value();
  states_[index_of(task)] = State::Launched;
  if (Status status = api_.record(end.value(), stream); !status.ok()) {
    return status;
  }
  if (done.ok() && meets && sends) {
    tell(task, word);
  }
  return {};
}

void GpuBackend::tell(TaskId task, const Work& word) {
  if (!word) {
    return;
  }
  if (const Status told = word(task); !told.ok()) {
    state_.fail(told.error());
  }
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
    const TaskId task = head.task;
    const Work word = head.succeeded ? head.tell : Work();
    states_[index_of(task)] = State::Done;
    Origin& origin = origins_[lane.stream->gpu];
    recycle(head.start);
    const ir::Result<Nanos> reach = api_.between(origin.event, head.end);
    if (reach.ok() && reach.value() > kOriginReach) {
      recycle(origin.event);
      origin = {.event = head.end, .at = origin.at + reach.value()};
    } else {
      recycle(head.end);
    }
    lane.launched.pop_front();
    tell(task, word);
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
  return std::ranges::all_of(
      lanes_, [](const LaneState& lane) { return lane.launched.empty() && lane.pending.empty(); });
}

bool GpuBackend::progress() {
  bool moved = retire_all();
  if (state_.stopping()) {
    drop_pending();
    return moved;
  }
  const std::uint64_t completions = completions_.load(std::memory_order_acquire);
  moved = moved || completions != completions_seen_;
  completions_seen_ = completions;
  for (LaneState& lane : lanes_) {
    moved = launch_ready(lane) || moved;
  }
  return moved;
}

/// After a failure here or elsewhere: a transfer whose other end never comes would not end, either.
void GpuBackend::drop_pending() {
  for (LaneState& lane : lanes_) {
    lane.pending.clear();
  }
  if (transport_ != nullptr && !aborted_) {
    aborted_ = true;
    transport_->abort();
  }
}

void GpuBackend::poll_until(const std::function<bool()>& enough) {
  constexpr auto kSpin = std::chrono::microseconds(50);
  constexpr auto kNap = std::chrono::microseconds(20);
  Clock::time_point last_move = Clock::now();
  while (!enough() && !gpu_is_broken_) {
    if (progress()) {
      last_move = Clock::now();
      continue;
    }
    const auto still = Clock::now() - last_move;
    if (still >= options_.time_out) {
      state_.fail(describe_stall(*schedule_, heads(), options_.time_out.count(), owners_));
      drop_pending();
      gpu_is_broken_ = true;
    } else if (still > kSpin) {
      if (transport_ != nullptr && !state_.stopping()) {
        if (const Status status = transport_->check(); !status.ok()) {
          state_.fail(status.error());
        }
      }
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
    lane.pending.clear();
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
    const LaneState& lane = lanes_[i];
    if (!lane.launched.empty()) {
      const std::vector<TaskId>& waits = lane.launched.front().waits;
      const auto before = std::ranges::find_if(
          waits, [this](TaskId id) { return states_[index_of(id)] == State::Launched; });
      heads[i] = {.task = lane.launched.front().task,
                  .running = before == waits.end(),
                  .waits_for = before == waits.end() ? std::nullopt : std::optional(*before)};
    } else if (!lane.pending.empty()) {
      heads[i] = {.task = lane.pending.front().task,
                  .running = false,
                  .waits_for = missing(lane.pending.front())};
    }
  }
  return heads;
}

}  // namespace xpipe::executor
