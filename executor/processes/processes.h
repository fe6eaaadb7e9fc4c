// The other processes of a run, over links: tells them of tasks that are done and hears of theirs,
// carries messages at drained borders, and sees to it that the first failure of any rank ends all.
//
//   lanes --done()--> queue of rank 1 --sender thread-->  link  --receiver thread--> its backend
//                     queue of rank 2 ...
//
// Every pair of ranks has a link with a thread that sends and one that receives; so a transfer
// hides behind compute, and a receive is always posted. A third thread sends beats, so that a rank
// that computes for long is told from one that is stopped or unreachable, and looks for signals.
//
// A failure floods: the rank where it happens sends it to all, whoever first hears of it (or loses
// a connection, or hears nothing for long) does the same. So no rank is needed for the news, and
// all end with the same first cause. Nobody closes a link before the other side has said its last
// word, or a moment has passed.
//
// Thread-safety: as Peers; fail() from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/peers.h"
#include "executor/processes/failure.h"
#include "executor/processes/frame.h"
#include "executor/processes/link.h"
#include "executor/processes/stops.h"
#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::executor {

struct ProcessesOptions {
  std::uint32_t rank = 0;
  /// Bounds every wait. A rank that is silent for three quarters of it has failed. > 0.
  std::chrono::nanoseconds time_out = std::chrono::seconds(300);
  Stops stops = {};
};

class Processes final : public Peers {
 public:
  /// `links` by rank, none for this one. The threads start at once.
  Processes(std::vector<std::unique_ptr<Link>> links, ProcessesOptions options);
  /// Aborts what is still under way.
  ~Processes() override;

  /// How many devices the schedules have: each rank runs a block of them, devices / ranks long.
  /// Requires: a multiple of ranks(). Before the first run.
  void set_devices(std::uint32_t devices) { devices_per_rank_ = devices / ranks(); }

  // Peers
  [[nodiscard]] std::uint32_t rank() const override { return options_.rank; }

  [[nodiscard]] std::uint32_t ranks() const override {
    return static_cast<std::uint32_t>(peers_.size());
  }

  [[nodiscard]] std::uint32_t rank_of(ir::DeviceId device) const override;
  void set_mail(Mail* mail) override;
  void attach(const ir::Schedule& schedule, Backend& backend) override;
  ir::Status done(ir::TaskId task) override;
  void detach() override;
  ir::Status send(std::uint32_t to, Parcel parcel) override;
  [[nodiscard]] ir::Result<Parcel> receive(std::uint32_t from) override;

  /// This rank has failed; the first failure of all is kept and told to everybody.
  void fail(ir::Error error);

  /// The good end: everything sent has arrived, and everybody says so. Errors: the first failure;
  /// Runtime "time-out".
  ir::Status finish();

  /// The bad end: fail(), then a moment for the others to hear of it. Returns the first cause, with
  /// its rank, to be shown.
  [[nodiscard]] ir::Error leave(ir::Error error);

  /// Of the first failure, if it was an interruption; else 0.
  [[nodiscard]] int signal() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Peer {
    std::unique_ptr<Link> link;
    std::thread sender;
    std::thread receiver;
    std::condition_variable ready;  ///< the sender has something to do
    // guarded by mutex_
    std::deque<Frame> queue;
    std::deque<Parcel> inbox;
    std::vector<PackedTensor> parts;  ///< that have come of a frame of several
    bool sent_last = false;           ///< Failed or Bye is out, or the link is lost
    bool heard_last = false;          ///< Failed or Bye has come, or the link is lost
    std::string receiving;            ///< what is under way, for messages; empty: nothing
    // written by the receiver only
    std::atomic<std::int64_t> last_heard = 0;  ///< ns of Clock
  };

  /// What a receiver is at, for messages.
  struct Arriving {
    FrameKind kind = FrameKind::Beat;
    std::uint32_t segment = 0;
    std::uint32_t task = 0;
    std::size_t bytes = 0;
  };

  void send_to(std::uint32_t peer);
  void receive_from(std::uint32_t peer);
  void hear(std::uint32_t peer);
  /// Everything of one frame; false when the link is lost.
  [[nodiscard]] bool send_frame(std::uint32_t peer, const Frame& frame);
  [[nodiscard]] bool receive_tensors(std::uint32_t peer,
                                     const Arriving& arriving,
                                     DecodedHead& head);
  /// False after the last frame of a peer.
  [[nodiscard]] bool take(std::uint32_t peer, Frame frame);
  void watch();
  void look_for_silence();
  /// The link to a peer broke; unless its end was due, that is a failure: the signal's, where this
  /// rank had been signalled or hears Ctrl-C within kSignalMoment. Requires: mutex_ free.
  void lost(std::uint32_t peer, const ir::Error& error);
  [[nodiscard]] Failure interruption() const;
  [[nodiscard]] Failure loss_of(std::uint32_t peer, const ir::Error& error) const;

  // with mutex_ held
  void hear_done(std::uint32_t peer, std::uint32_t task, Parcel parcel);
  void cannot_take(std::uint32_t peer, const Arriving& arriving, const std::string& why);
  void record(Failure failure);
  void post(std::uint32_t peer, Frame frame);
  /// For whoever waits for a message, a last word or a failure.
  void notify();

  [[nodiscard]] ir::Error shown_failure() const;
  /// The task that it goes with, where it is one of the run at hand.
  [[nodiscard]] const ir::Task* task_of(const Arriving& arriving) const;
  [[nodiscard]] std::string describe(const Arriving& arriving) const;
  [[nodiscard]] bool all_said(bool Peer::* last) const;
  void join_all();

  const ProcessesOptions options_;
  std::vector<Peer> peers_;  ///< by rank; that of this one has no link
  std::uint32_t devices_per_rank_ = 1;
  std::thread watcher_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  ///< a message, a last word, or a failure
  std::condition_variable close_;
  // guarded by mutex_
  bool closing_ = false;
  std::optional<Failure> failure_;
  std::optional<Failure> loss_;  ///< the first, unless a Ctrl-C explains it within kSignalMoment
  Mail* mail_ = nullptr;
  Backend* backend_ = nullptr;
  const ir::Schedule* schedule_ = nullptr;
  std::uint32_t segment_ = 0;
  std::vector<std::vector<std::uint32_t>> told_;  ///< by TaskId: ranks that wait for it
  /// News of runs that have not begun here, by segment.
  std::map<std::uint32_t, std::vector<std::pair<std::uint32_t, Frame>>> early_;
};

}  // namespace xpipe::executor
