// The backend for GPUs: a stream a lane, an event for every edge between lanes. Work is called at
// once, on the engine's thread, in the topological order that the engine gives; what it launches
// goes to its lane's stream and runs when the stream and its events say so.
//
//   engine:  wait(compute 1, 0F0)      stream of compute 1 waits for the end event of 0F0
//            enqueue(compute 1, 1F0)   start event, work(1F0) launches kernels, end event
//
// Where other processes run a part of the schedule, the host knows when their tasks are done: what
// waits for one of them is launched after complete(), and other lanes go on meanwhile. Tasks that
// others wait for are told when the GPU is done with them; the send of a GpuTransport, whose two
// ends meet on the GPUs, when it is launched.
//
//   wait(receive, 0SEND_F0 of rank 0)   remembered
//   enqueue(receive, 1RECV_F0)          kept until complete(0SEND_F0), then launched
//   enqueue(compute, 1F0)               kept until 1RECV_F0 is launched; its stream waits for it
//
// Several devices of a schedule may be on one GPU: their streams share it. The host runs ahead of a
// lane by a bounded number of tasks, so that memory, which is free only when the GPU is done with
// it, stays bounded, too.
//
// Times are those of the events, laid on the host's clock: the moment of one event is measured on
// both clocks when a run begins. A span ends when the GPU is done, not when the launch is.
//
// Time-out: when nothing has ended for `time_out`, the run fails with who waits for whom, and what
// runs on the GPU is left behind. Work that hangs on the host hangs the caller.
// Thread-safety: as Backend.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/device.h"
#include "executor/gpu_api.h"
#include "executor/gpu_transport.h"
#include "executor/stall.h"
#include "executor/stop_state.h"

namespace xpipe::executor {

struct GpuBackendOptions {
  /// Device d of a schedule is on GPU map[d mod size].
  std::vector<std::uint32_t> device_map = {0};
  std::chrono::nanoseconds time_out = std::chrono::seconds(300);
  /// Tasks of a lane that are launched and not done. > 0.
  std::uint32_t ahead = 32;
  /// Called before each work, on the same thread: what it launches must go to this stream.
  std::function<void(GpuStream)> on_lane = {};
};

class GpuBackend final : public Backend {
 public:
  /// `api` must outlive the backend.
  GpuBackend(GpuApi& api, GpuBackendOptions options);
  GpuBackend(const GpuBackend&) = delete;
  GpuBackend& operator=(const GpuBackend&) = delete;
  ~GpuBackend() override;

  [[nodiscard]] std::string name() const override { return api_.name(); }

  /// Errors: Usage "no-such-gpu" when the map names one that is not there; what the vendor says.
  ir::Status begin(const ir::Schedule& schedule) override;
  ir::Status expect(Event event, const std::string& owner) override;
  void complete(Event event) override;
  void wait(ir::LaneId lane, Event event) override;
  Event enqueue(ir::LaneId lane, ir::TaskId task, Work work) override;
  Event enqueue_told(ir::LaneId lane, ir::TaskId task, Work work, Work tell) override;
  ir::Status synchronize() override;
  void stop(ir::Error reason) override;
  [[nodiscard]] ir::Timeline timeline() const override;

  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> origin() const override {
    return schedule_ != nullptr ? std::optional(origin_) : std::nullopt;
  }

  /// The stream of the work that is being called. Requires: called by it.
  [[nodiscard]] GpuStream current() const { return current_; }

  /// What carries messages to and from other processes from the next run on; null: the host does.
  /// Outlives the backend or is taken away.
  void set_transport(GpuTransport* transport) { transport_ = transport; }

  /// What begin() says of the map, before there is a schedule.
  [[nodiscard]] ir::Status check_map() const;

 private:
  using Clock = std::chrono::steady_clock;

  /// A task that is not on its stream yet.
  struct Pending {
    ir::TaskId task{};
    std::vector<ir::TaskId> waits;
    Work work;
    Work tell;  ///< may be empty
  };

  /// A task on its stream.
  struct Launched {
    ir::TaskId task{};
    GpuEvent start;
    GpuEvent end;
    std::vector<ir::TaskId> waits;
    Work tell;                ///< when it is over; may be empty
    bool is_arrival = false;  ///< the other end of a transfer: only its end counts
    bool succeeded = false;   ///< on the host
  };

  struct LaneState {
    ir::DeviceId device{};
    std::size_t ordinal = 0;          ///< among the device's lanes
    std::optional<GpuStream> stream;  ///< once something is launched
    std::deque<Pending> pending;      ///< in order, after those launched
    std::deque<Launched> launched;    ///< in order, not yet known to be done
    std::vector<ir::TaskId> waits;    ///< of the next task
    ir::Nanos last_end = 0;
  };

  /// A moment known on both clocks.
  struct Origin {
    GpuEvent event;
    ir::Nanos at = 0;  ///< since the run began
  };

  enum class State : std::uint8_t { NotLaunched, Launched, Done, Elsewhere };

  [[nodiscard]] ir::Status open_stream(LaneState& lane);
  [[nodiscard]] ir::Result<GpuEvent> event_on(std::uint32_t gpu);

  void recycle(GpuEvent event) { free_[event.gpu].push_back(event); }

  [[nodiscard]] ir::Status find_origin(GpuStream stream);
  [[nodiscard]] std::optional<ir::TaskId> missing(const Pending& pending) const;
  [[nodiscard]] bool launch_ready(LaneState& lane);
  [[nodiscard]] ir::Status launch(LaneState& lane, Pending pending);
  [[nodiscard]] ir::Status launch_waits(const LaneState& lane,
                                        const std::vector<ir::TaskId>& waits);
  void tell(ir::TaskId task, const Work& word);
  [[nodiscard]] bool meets_another(const Pending& pending) const;
  [[nodiscard]] ir::Status retire(LaneState& lane);
  [[nodiscard]] ir::Status note_span(LaneState& lane, const Launched& launched);
  [[nodiscard]] bool retire_all();
  /// Takes in what has ended and launches what may start; whether there was any, here or elsewhere.
  [[nodiscard]] bool progress();
  void drop_pending();
  /// Makes progress until `enough`, a failure of the GPU, or the time-out.
  void poll_until(const std::function<bool()>& enough);
  [[nodiscard]] bool is_idle() const;
  [[nodiscard]] std::vector<std::optional<LaneHead>> heads();
  void gpu_failed(const ir::Status& status, ir::TaskId task);
  void abandon();
  [[nodiscard]] ir::Nanos now() const;

  GpuApi& api_;
  const GpuBackendOptions options_;
  GpuTransport* transport_ = nullptr;
  StopState state_;
  const ir::Schedule* schedule_ = nullptr;
  std::map<std::pair<ir::DeviceId, std::size_t>, GpuStream> streams_;  ///< over all runs
  std::map<std::uint32_t, std::vector<GpuEvent>> free_;                ///< by GPU
  std::map<std::uint32_t, Origin> origins_;                            ///< by GPU
  std::vector<LaneState> lanes_;                                       ///< by LaneId
  std::vector<State> states_;                                          ///< by TaskId
  std::vector<GpuEvent> ends_;                                         ///< by TaskId, launched
  std::vector<ir::Span> spans_;                                        ///< by TaskId, done
  std::vector<bool> has_span_;
  GpuStream current_;
  bool gpu_is_broken_ = false;
  bool aborted_ = false;  ///< the transport, in this run
  Clock::time_point origin_;
  std::vector<std::string> owners_;  ///< by DeviceId; empty: no other process has a part
  /// By TaskId, of other processes' tasks: done. None before the first expect().
  std::unique_ptr<std::atomic<bool>[]> completed_;
  std::atomic<std::uint64_t> completions_ = 0;
  std::uint64_t completions_seen_ = 0;
};

}  // namespace xpipe::executor
