#include "executor/processes/processes.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "executor/device.h"
#include "ir/text.h"

namespace xpipe::executor {

namespace {

using ir::ErrorKind;
using ir::index_of;
using std::chrono::nanoseconds;

constexpr nanoseconds kLongestGrace = std::chrono::seconds(2);
constexpr const char* kPeerLost = "peer-lost";

std::string rank_name(std::uint32_t rank) {
  return "rank " + std::to_string(rank);
}

std::string in_seconds(nanoseconds time) {
  std::ostringstream text;
  text << std::chrono::duration<double>(time).count() << " s";
  return text.str();
}

bool is_loss(const Failure& failure) {
  const std::vector<ir::Diagnostic>& causes = failure.error.diagnostics;
  return !causes.empty() && causes.front().code == kPeerLost;
}

}  // namespace

Processes::Processes(std::vector<std::unique_ptr<Link>> links, ProcessesOptions options)
    : options_(std::move(options)), peers_(links.size()) {
  for (std::size_t i = 0; i < links.size(); ++i) {
    Peer& peer = peers_[i];
    peer.link = std::move(links[i]);
    peer.sent_last = peer.heard_last = !peer.link;
    peer.last_heard = Clock::now().time_since_epoch().count();
  }
  for (std::uint32_t i = 0; i < ranks(); ++i) {
    if (peers_[i].link) {
      peers_[i].sender = std::thread([this, i] { send_to(i); });
      peers_[i].receiver = std::thread([this, i] { receive_from(i); });
    }
  }
  watcher_ = std::thread([this] { watch(); });
}

Processes::~Processes() {
  join_all();
}

void Processes::join_all() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  close_.notify_all();
  for (Peer& peer : peers_) {
    if (peer.link) {
      peer.ready.notify_all();
      peer.link->abort();
    }
  }
  for (Peer& peer : peers_) {
    if (peer.sender.joinable()) {
      peer.sender.join();
    }
    if (peer.receiver.joinable()) {
      peer.receiver.join();
    }
  }
  if (watcher_.joinable()) {
    watcher_.join();
  }
}

std::uint32_t Processes::rank_of(ir::DeviceId device) const {
  return index_of(device) / devices_per_rank_;
}

void Processes::set_mail(Mail* mail) {
  const std::lock_guard lock(mutex_);
  mail_ = mail;
}

void Processes::attach(const ir::Schedule& schedule, Backend& backend) {
  std::vector<std::vector<std::uint32_t>> told(schedule.tasks.size());
  for (const ir::Edge& edge : schedule.edges) {
    const ir::DeviceId from = schedule.lane(schedule.task(edge.from).lane).device;
    const std::uint32_t to = rank_of(schedule.lane(schedule.task(edge.to).lane).device);
    std::vector<std::uint32_t>& ranks = told[index_of(edge.from)];
    if (is_local(from) && to != rank() && std::ranges::find(ranks, to) == ranks.end()) {
      ranks.push_back(to);
    }
  }
  const std::lock_guard lock(mutex_);
  told_ = std::move(told);
  schedule_ = &schedule;
  backend_ = &backend;
  ++segment_;
  if (failure_) {
    backend_->stop(shown_failure());
    return;
  }
  if (const auto found = early_.find(segment_); found != early_.end()) {
    for (auto& [peer, frame] : found->second) {
      hear_done(peer, frame.task, std::move(frame.parcel));
    }
    early_.erase(found);
  }
}

void Processes::detach() {
  const std::lock_guard lock(mutex_);
  backend_ = nullptr;
  schedule_ = nullptr;
}

ir::Status Processes::done(ir::TaskId task) {
  Mail* mail = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      return shown_failure();
    }
    mail = mail_;
  }
  Frame frame{.kind = FrameKind::Done, .segment = 0, .task = index_of(task), .parcel = {}};
  if (mail != nullptr) {
    if (std::optional<Parcel> parcel = mail->collect(task)) {
      frame.parcel = std::move(*parcel);
    }
  }
  const std::lock_guard lock(mutex_);
  frame.segment = segment_;
  for (const std::uint32_t peer : told_[index_of(task)]) {
    post(peer, frame);
  }
  return {};
}

ir::Status Processes::send(std::uint32_t to, Parcel parcel) {
  const std::lock_guard lock(mutex_);
  if (failure_) {
    return shown_failure();
  }
  if (to == rank()) {
    peers_[to].inbox.push_back(std::move(parcel));
  } else {
    post(to, {.kind = FrameKind::Plain, .parcel = std::move(parcel)});
  }
  return {};
}

ir::Result<Parcel> Processes::receive(std::uint32_t from) {
  std::unique_lock lock(mutex_);
  std::deque<Parcel>& inbox = peers_[from].inbox;
  const bool came = changed_.wait_for(lock, options_.time_out,
                                      [&] { return !inbox.empty() || failure_.has_value(); });
  if (!inbox.empty() && !failure_) {
    Parcel parcel = std::move(inbox.front());
    inbox.pop_front();
    return parcel;
  }
  if (!came) {
    record(
        {.rank = rank(),
         .signal = 0,
         .error = ir::make_error(ErrorKind::Runtime, "time-out", "",
                                 "waits for a message of " + rank_name(from) +
                                     " between two runs, and none has "
                                     "come for " +
                                     in_seconds(options_.time_out) +
                                     "; raise --timeout-s if that rank may be busy for so long")});
  }
  return shown_failure();
}

void Processes::fail(ir::Error error) {
  const int signal = error.kind == ErrorKind::Interrupted ? options_.stops.signal_number() : 0;
  const std::lock_guard lock(mutex_);
  record({.rank = rank(), .signal = signal, .error = std::move(error)});
}

ir::Status Processes::finish() {
  std::unique_lock lock(mutex_);
  if (!failure_) {
    for (std::uint32_t i = 0; i < ranks(); ++i) {
      if (peers_[i].link) {
        post(i, {.kind = FrameKind::Bye, .parcel = {}});
      }
    }
    const bool said = changed_.wait_for(lock, options_.time_out, [this] {
      return failure_ || (all_said(&Peer::sent_last) && all_said(&Peer::heard_last));
    });
    if (!said) {
      std::string missing;
      for (std::uint32_t i = 0; i < ranks(); ++i) {
        if (!peers_[i].heard_last || !peers_[i].sent_last) {
          missing += (missing.empty() ? "" : ", ") + rank_name(i);
        }
      }
      record({.rank = rank(),
              .signal = 0,
              .error = ir::make_error(ErrorKind::Runtime, "time-out", "",
                                      "is done, and waits for the end of " + missing + " for " +
                                          in_seconds(options_.time_out))});
    }
  }
  if (failure_) {
    return shown_failure();
  }
  lock.unlock();
  join_all();
  return {};
}

ir::Error Processes::leave(ir::Error error) {
  fail(std::move(error));
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::min<nanoseconds>(options_.time_out, kLongestGrace),
                    [this] { return all_said(&Peer::sent_last) && all_said(&Peer::heard_last); });
  return shown_failure();
}

int Processes::signal() const {
  const std::lock_guard lock(mutex_);
  return failure_ && failure_->error.kind == ErrorKind::Interrupted ? failure_->signal : 0;
}

ir::Error Processes::shown_failure() const {
  return shown(*failure_);
}

bool Processes::all_said(bool Peer::* last) const {
  return std::ranges::all_of(peers_, [last](const Peer& peer) { return peer.*last; });
}

void Processes::post(std::uint32_t peer, Frame frame) {
  if (!peers_[peer].sent_last) {
    std::ranges::move(in_parts(std::move(frame)), std::back_inserter(peers_[peer].queue));
    peers_[peer].ready.notify_one();
  }
}

void Processes::notify() {
  changed_.notify_all();
}

Failure Processes::interruption() const {
  return {
      .rank = rank(),
      .signal = options_.stops.signal_number(),
      .error = ir::make_error(ErrorKind::Interrupted, "interrupted", "", "stopped by a signal")};
}

Failure Processes::loss_of(std::uint32_t peer, const ir::Error& error) const {
  const std::string& receiving = peers_[peer].receiving;
  return {.rank = rank(),
          .signal = 0,
          .error = ir::make_error(
              ErrorKind::Runtime, kPeerLost, "peer " + rank_name(peer),
              rank_name(peer) + " is gone: its process was killed or has exited without a word" +
                  (receiving.empty() ? "" : ", in the middle of " + receiving) + " (" +
                  error.diagnostics.front().message +
                  "); its own output, or the launcher's, says more")};
}

void Processes::record(Failure failure) {
  if (failure_) {
    return;
  }
  const bool is_own_signal = failure.error.kind == ErrorKind::Interrupted && failure.rank == rank();
  if (is_loss(failure) && options_.stops.is_ctrl_c()) {
    failure = interruption();
  } else if (is_own_signal && loss_ && !options_.stops.is_ctrl_c()) {
    failure = *loss_;
  }
  failure_ = std::move(failure);
  const Parcel news = parcel_of(to_bytes(*failure_));
  for (Peer& peer : peers_) {
    if (peer.link && !peer.sent_last) {
      peer.queue.clear();  // what is said now is all that still counts
      peer.queue.push_back({.kind = FrameKind::Failed, .parcel = news});
      peer.ready.notify_one();
    }
  }
  if (backend_ != nullptr) {
    backend_->stop(shown_failure());
  }
  notify();
}

void Processes::lost(std::uint32_t peer, const ir::Error& error) {
  std::unique_lock lock(mutex_);
  Peer& it = peers_[peer];
  const auto is_expected = [&] { return it.heard_last || closing_ || failure_; };
  if (!is_expected() && options_.stops.is_interrupted()) {
    record(interruption());
  }
  if (!is_expected()) {
    if (!loss_) {
      loss_ = loss_of(peer, error);
    }
    const Clock::time_point until = Clock::now() + kSignalMoment;
    while (!is_expected() && !options_.stops.is_interrupted() &&
           options_.stops.interrupted != nullptr && Clock::now() < until) {
      changed_.wait_for(lock, kSignalEvery);
    }
    if (!is_expected()) {
      record(*loss_);
    }
  }
  it.sent_last = it.heard_last = true;
  it.queue.clear();
  it.ready.notify_one();
  notify();
}

}  // namespace xpipe::executor
