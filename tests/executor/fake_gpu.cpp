#include "tests/executor/fake_gpu.h"

#include <algorithm>
#include <utility>

namespace xpipe::tests {

using executor::GpuEvent;
using executor::GpuStream;

ir::Status FakeGpu::fault() const {
  if (options_.fails_at && records_ > *options_.fails_at) {
    return ir::make_error(ir::ErrorKind::Runtime, "gpu-failed", "", "an illegal address was read");
  }
  return {};
}

ir::Result<GpuStream> FakeGpu::create_stream(std::uint32_t gpu) {
  streams_.push_back(std::make_unique<StreamState>(StreamState{.gpu = gpu}));
  ++living_;
  return GpuStream{gpu, streams_.back().get()};
}

void FakeGpu::destroy(GpuStream /*stream*/) {
  --living_;
}

ir::Result<GpuEvent> FakeGpu::create_event(std::uint32_t gpu) {
  events_.push_back(std::make_unique<EventState>(EventState{.gpu = gpu}));
  ++living_;
  most_living_events_ = std::max(most_living_events_, ++living_events_);
  return GpuEvent{gpu, events_.back().get()};
}

void FakeGpu::destroy(GpuEvent /*event*/) {
  --living_;
  --living_events_;
}

ir::Status FakeGpu::record(GpuEvent event, GpuStream stream) {
  auto& recorded = *static_cast<EventState*>(event.handle);
  auto& on = *static_cast<StreamState*>(stream.handle);
  XPIPE_CHECK(recorded.gpu == on.gpu) << "an event of another GPU";
  auto moment = std::make_shared<Moment>(Moment{.hangs = options_.hangs_at == records_,
                                                .looks_left = options_.looks,
                                                .at = ++clock_,
                                                .after = std::exchange(on.waits, {})});
  if (on.last) {
    moment->after.push_back(on.last);
  }
  on.last = moment;
  recorded.moment = std::move(moment);
  ++records_;
  return fault();
}

ir::Status FakeGpu::wait(GpuStream stream, GpuEvent event) {
  const auto& waited = *static_cast<EventState*>(event.handle);
  XPIPE_CHECK(waited.moment != nullptr) << "a wait for an event that was never recorded";
  static_cast<StreamState*>(stream.handle)->waits.push_back(waited.moment);
  ++waits_;
  return fault();
}

void FakeGpu::hold(GpuStream stream, std::shared_ptr<std::atomic<bool>> open) {
  auto& on = *static_cast<StreamState*>(stream.handle);
  auto moment = std::make_shared<Moment>(
      Moment{.at = ++clock_, .after = std::exchange(on.waits, {}), .open = std::move(open)});
  if (on.last) {
    moment->after.push_back(on.last);
  }
  on.last = std::move(moment);
}

bool FakeGpu::look(Moment& moment) {
  if (moment.hangs) {
    return false;
  }
  while (!moment.after.empty()) {
    if (!look(*moment.after.back())) {
      return false;
    }
    moment.after.pop_back();
  }
  if (moment.open && !moment.open->load()) {
    return false;
  }
  if (moment.looks_left > 0) {
    --moment.looks_left;
    return false;
  }
  return true;
}

ir::Result<bool> FakeGpu::is_done(GpuEvent event) {
  if (ir::Status status = fault(); !status.ok()) {
    return status.error();
  }
  const auto& state = *static_cast<EventState*>(event.handle);
  XPIPE_CHECK(state.moment != nullptr) << "nobody recorded this event";
  return look(*state.moment);
}

ir::Result<ir::Nanos> FakeGpu::between(GpuEvent from, GpuEvent to) {
  const auto& first = *static_cast<EventState*>(from.handle);
  const auto& second = *static_cast<EventState*>(to.handle);
  XPIPE_CHECK(first.gpu == second.gpu) << "times of two GPUs' events cannot be compared";
  XPIPE_CHECK(first.moment && second.moment) << "an event that was never recorded";
  return second.moment->at - first.moment->at;
}

}  // namespace xpipe::tests
