// The threads of Processes: what they send, hear and watch.
#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

#include "executor/device.h"
#include "executor/processes/processes.h"
#include "ir/text.h"

namespace xpipe::executor {

namespace {

using ir::ErrorKind;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kWatchEvery = milliseconds(20);

}  // namespace

void Processes::send_to(std::uint32_t peer) {
  Peer& to = peers_[peer];
  for (;;) {
    Frame frame;
    {
      std::unique_lock lock(mutex_);
      to.ready.wait(lock, [&] { return closing_ || to.sent_last || !to.queue.empty(); });
      if (to.sent_last || to.queue.empty()) {
        return;
      }
      frame = std::move(to.queue.front());
      to.queue.pop_front();
    }
    if (!send_frame(peer, frame)) {
      return;
    }
    if (frame.kind == FrameKind::Failed || frame.kind == FrameKind::Bye) {
      const std::lock_guard lock(mutex_);
      to.sent_last = true;
      notify();
      return;
    }
  }
}

bool Processes::send_frame(std::uint32_t peer, const Frame& frame) {
  Link& link = *peers_[peer].link;
  const auto send = [&](std::span<const std::byte> bytes) {
    const ir::Status status = link.send(bytes);
    if (!status.ok()) {
      lost(peer, status.error());
    }
    return status.ok();
  };
  if (!send(encode_head(frame))) {
    return false;
  }
  if (fits_in_head(frame.parcel)) {
    return true;
  }
  for (const PackedTensor& tensor : frame.parcel.tensors) {
    for (std::size_t at = 0; at < tensor.bytes; at += kPieceBytes) {
      if (!send({tensor.data + at, std::min(kPieceBytes, tensor.bytes - at)})) {
        return false;
      }
    }
  }
  return true;
}

void Processes::receive_from(std::uint32_t peer) {
  try {
    hear(peer);
  } catch (const std::exception& exception) {
    const std::lock_guard lock(mutex_);
    cannot_take(peer, {}, exception.what());
  }
}

/// No memory for it, above all. In the place of the failure stands the task that it came with.
/// Requires: mutex_ held.
void Processes::cannot_take(std::uint32_t peer, const Arriving& arriving, const std::string& why) {
  const ir::Task* task = task_of(arriving);
  peers_[peer].heard_last = true;
  record(
      {.rank = rank(),
       .signal = 0,
       .error = ir::make_error(
           ErrorKind::Runtime, "receive-failed",
           task != nullptr ? ir::to_text(*task) : "peer rank " + std::to_string(peer),
           "its message of " + std::to_string(arriving.bytes) + " bytes, from rank " +
               std::to_string(peer) + ", cannot be taken here: " + why.substr(0, why.find('\n')))});
  notify();
}

void Processes::hear(std::uint32_t peer) {
  Peer& from = peers_[peer];
  for (;;) {
    Head head;
    if (const ir::Status status = from.link->receive(head); !status.ok()) {
      lost(peer, status.error());
      return;
    }
    from.last_heard = Clock::now().time_since_epoch().count();
    ir::Result<DecodedHead> described = describe_head(head);
    if (!described.ok()) {
      const std::lock_guard lock(mutex_);
      ir::Error error = described.error();
      error.diagnostics.front().where = "peer rank " + std::to_string(peer);
      record({.rank = rank(), .signal = 0, .error = std::move(error)});
      from.heard_last = true;
      notify();
      return;
    }
    DecodedHead& decoded = described.value();
    Arriving arriving{
        .kind = decoded.frame.kind, .segment = decoded.frame.segment, .task = decoded.frame.task};
    for (const PackedTensor& tensor : decoded.frame.parcel.tensors) {
      arriving.bytes += tensor.bytes;
    }
    try {
      give_memory(head, decoded);
      if (decoded.follow && !receive_tensors(peer, arriving, decoded)) {
        return;
      }
      if (!take(peer, std::move(decoded.frame))) {
        return;
      }
    } catch (const std::exception& exception) {
      const std::lock_guard lock(mutex_);
      cannot_take(peer, arriving, exception.what());
      return;
    }
  }
}

bool Processes::receive_tensors(std::uint32_t peer, const Arriving& arriving, DecodedHead& head) {
  Peer& from = peers_[peer];
  {
    const std::lock_guard lock(mutex_);
    from.receiving = describe(arriving);
  }
  const std::vector<PackedTensor>& tensors = head.frame.parcel.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t at = 0; at < tensors[i].bytes; at += kPieceBytes) {
      const std::size_t piece = std::min(kPieceBytes, tensors[i].bytes - at);
      if (const ir::Status status = from.link->receive({head.memory[i] + at, piece});
          !status.ok()) {
        lost(peer, status.error());
        return false;
      }
      from.last_heard = Clock::now().time_since_epoch().count();
    }
  }
  const std::lock_guard lock(mutex_);
  from.receiving.clear();
  return true;
}

const ir::Task* Processes::task_of(const Arriving& arriving) const {
  const bool has_task = arriving.kind == FrameKind::Done || arriving.kind == FrameKind::Part;
  return has_task && schedule_ != nullptr && arriving.segment == segment_ &&
                 arriving.task < schedule_->tasks.size()
             ? &schedule_->tasks[arriving.task]
             : nullptr;
}

std::string Processes::describe(const Arriving& arriving) const {
  const std::string size = std::to_string(arriving.bytes) + " bytes";
  const ir::Task* task = task_of(arriving);
  return task != nullptr ? ir::to_text(*task) + " (" + size + ")" : "a message of " + size;
}

bool Processes::take(std::uint32_t peer, Frame frame) {
  const std::lock_guard lock(mutex_);
  Peer& from = peers_[peer];
  if (frame.kind == FrameKind::Done || frame.kind == FrameKind::Plain) {
    // Behind those of its parts, which came first.
    std::vector<PackedTensor> tensors = std::exchange(from.parts, {});
    std::ranges::move(frame.parcel.tensors, std::back_inserter(tensors));
    frame.parcel.tensors = std::move(tensors);
  }
  switch (frame.kind) {
    case FrameKind::Beat:
      return true;
    case FrameKind::Part:
      std::ranges::move(frame.parcel.tensors, std::back_inserter(from.parts));
      return true;
    case FrameKind::Done:
      if (failure_) {
        return true;
      }
      if (backend_ != nullptr && frame.segment == segment_) {
        hear_done(peer, frame.task, std::move(frame.parcel));
      } else {
        early_[frame.segment].emplace_back(peer, std::move(frame));
      }
      return true;
    case FrameKind::Plain:
      from.inbox.push_back(std::move(frame.parcel));
      notify();
      return true;
    case FrameKind::Failed: {
      const ir::Result<Failure> failure = failure_from(bytes_of(frame.parcel));
      from.heard_last = true;
      record(failure.ok() ? failure.value()
                          : Failure{.rank = peer, .signal = 0, .error = failure.error()});
      notify();
      return false;
    }
    case FrameKind::Bye:
      from.heard_last = true;
      notify();
      return false;
  }
  return false;
}

void Processes::hear_done(std::uint32_t peer, std::uint32_t task, Parcel parcel) {
  const bool known = task < schedule_->tasks.size() &&
                     rank_of(schedule_->lane(schedule_->tasks[task].lane).device) == peer;
  if (!known) {
    record({.rank = rank(),
            .signal = 0,
            .error = ir::make_error(
                ErrorKind::Internal, "bad-frame", "peer rank " + std::to_string(peer),
                "it says that task " + std::to_string(task) + " is done, which is not its own")});
    return;
  }
  if (mail_ != nullptr) {
    Arriving arriving{.kind = FrameKind::Done, .segment = segment_, .task = task};
    for (const PackedTensor& tensor : parcel.tensors) {
      arriving.bytes += tensor.bytes;
    }
    try {
      if (const ir::Status status = mail_->deliver(ir::TaskId{task}, std::move(parcel));
          !status.ok()) {
        record({.rank = rank(), .signal = 0, .error = status.error()});
        return;
      }
    } catch (const std::exception& exception) {  // here, too: a message may wait for its segment
      cannot_take(peer, arriving, exception.what());
      return;
    }
  }
  backend_->complete(Event{ir::TaskId{task}});
}

void Processes::watch() {
  const nanoseconds beat_every = std::min<nanoseconds>(milliseconds(500), options_.time_out / 16);
  Clock::time_point next_beat = Clock::now();
  std::unique_lock lock(mutex_);
  while (!closing_) {
    close_.wait_for(lock, std::min(kWatchEvery, beat_every), [this] { return closing_; });
    if (closing_) {
      return;
    }
    if (!failure_ && options_.stops.is_interrupted()) {
      record(interruption());
    }
    if (!failure_ && options_.stops.launcher.is_gone()) {
      record({.rank = rank(), .signal = 0, .error = options_.stops.launcher.error()});
    }
    if (failure_ || Clock::now() < next_beat) {
      continue;
    }
    next_beat = Clock::now() + beat_every;
    for (Peer& peer : peers_) {
      // Where something is on its way already, that says enough.
      if (peer.link && !peer.sent_last && peer.queue.empty()) {
        peer.queue.push_back({.kind = FrameKind::Beat, .parcel = {}});
        peer.ready.notify_one();
      }
    }
    look_for_silence();
  }
}

void Processes::look_for_silence() {
  const nanoseconds limit = options_.time_out / 4 * 3;
  for (std::uint32_t i = 0; i < ranks(); ++i) {
    Peer& peer = peers_[i];
    if (!peer.link || peer.heard_last) {
      continue;
    }
    const nanoseconds silent =
        Clock::now().time_since_epoch() - nanoseconds(peer.last_heard.load());
    if (silent < limit) {
      continue;
    }
    std::ostringstream text;
    text << "nothing has been heard of rank " << i << " for "
         << std::chrono::duration<double>(limit).count() << " s";
    if (!peer.receiving.empty()) {
      text << ", in the middle of " << peer.receiving;
    }
    text << ": it is stopped, or the network is; the limit is three quarters of --timeout-s";
    record({.rank = rank(),
            .signal = 0,
            .error = ir::make_error(ErrorKind::Runtime, "time-out",
                                    "peer rank " + std::to_string(i), text.str())});
    return;
  }
}

}  // namespace xpipe::executor
