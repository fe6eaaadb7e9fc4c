// The backend for GPUs: a stream a lane, an event for every edge between lanes. Work is called at
// once, on the engine's thread, in the topological order that the engine gives; what it launches
// goes to its lane's stream and runs when the stream and its events say so.
//
//   engine:  wait(compute 1, 0F0)      stream of compute 1 waits for the end event of 0F0
//            enqueue(compute 1, 1F0)   start event, work(1F0) launches kernels, end event
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

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/device.h"
#include "executor/gpu_api.h"
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
  void wait(ir::LaneId lane, Event event) override;
  Event enqueue(ir::LaneId lane, ir::TaskId task, Work work) override;
  ir::Status synchronize() override;
  void stop(ir::Error reason) override;
  [[nodiscard]] ir::Timeline timeline() const override;

  /// The stream of the work that is being called. Requires: called by it.
  [[nodiscard]] GpuStream current() const { return current_; }

  /// What begin() says of the map, before there is a schedule.
  [[nodiscard]] ir::Status check_map() const;

 private:
  using Clock = std::chrono::steady_clock;

  /// A task on its stream.
  struct Launched {
    ir::TaskId task{};
    GpuEvent start;
    GpuEvent end;
    std::vector<ir::TaskId> waits;
    bool succeeded = false;  ///< on the host
  };

  struct LaneState {
    GpuStream stream;
    std::deque<Launched> launched;  ///< in order, not yet known to be done
    std::vector<ir::TaskId> waits;  ///< of the next task
    ir::Nanos last_end = 0;
  };

  /// A moment known on both clocks.
  struct Origin {
    GpuEvent event;
    ir::Nanos at = 0;  ///< since the run began
  };

  enum class State : std::uint8_t { NotLaunched, Launched, Done };

  [[nodiscard]] ir::Result<GpuStream> stream_of(ir::DeviceId device, std::size_t ordinal);
  [[nodiscard]] ir::Result<GpuEvent> event_on(std::uint32_t gpu);

  void recycle(GpuEvent event) { free_[event.gpu].push_back(event); }

  [[nodiscard]] ir::Status find_origin(GpuStream stream);
  [[nodiscard]] ir::Status launch(LaneState& lane, ir::TaskId task, const Work& work);
  [[nodiscard]] ir::Status retire(LaneState& lane);
  [[nodiscard]] ir::Status note_span(LaneState& lane, const Launched& launched);
  [[nodiscard]] bool retire_all();
  /// Retires until `enough`, a failure of the GPU, or the time-out.
  void poll_until(const std::function<bool()>& enough);
  [[nodiscard]] bool is_idle() const;
  [[nodiscard]] std::vector<std::optional<LaneHead>> heads();
  void gpu_failed(const ir::Status& status, ir::TaskId task);
  void abandon();
  [[nodiscard]] ir::Nanos now() const;

  GpuApi& api_;
  const GpuBackendOptions options_;
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
  Clock::time_point origin_;
};

}  // namespace xpipe::executor
