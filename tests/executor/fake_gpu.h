// A GPU that is a clock and a list a stream: what the gpu backend is tested on without a GPU. What
// is recorded on a stream is done `latency` looks later; times count operations, so that nothing
// depends on how fast the test runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "executor/gpu_api.h"

namespace xpipe::tests {

class FakeGpu final : public executor::GpuApi {
 public:
  struct Options {
    std::uint32_t gpus = 1;
    /// How often an event must be looked at before it is done.
    std::uint32_t looks = 0;
    /// The nth call of record() (from 0) makes an event that is never done.
    std::optional<std::uint32_t> hangs_at;
    /// From the nth call of record() on, everything fails.
    std::optional<std::uint32_t> fails_at;
  };

  explicit FakeGpu(Options options) : options_(options) {}

  [[nodiscard]] const char* name() const override { return "fake-gpu"; }

  [[nodiscard]] std::uint32_t gpus() const override { return options_.gpus; }

  [[nodiscard]] ir::Result<executor::GpuStream> create_stream(std::uint32_t gpu) override;
  void destroy(executor::GpuStream stream) override;
  [[nodiscard]] ir::Result<executor::GpuEvent> create_event(std::uint32_t gpu) override;
  void destroy(executor::GpuEvent event) override;
  [[nodiscard]] ir::Status record(executor::GpuEvent event, executor::GpuStream stream) override;
  [[nodiscard]] ir::Status wait(executor::GpuStream stream, executor::GpuEvent event) override;
  [[nodiscard]] ir::Result<bool> is_done(executor::GpuEvent event) override;
  [[nodiscard]] ir::Result<ir::Nanos> between(executor::GpuEvent from,
                                              executor::GpuEvent to) override;

  /// What comes on `stream` from here on starts after `open`: a kernel that waits for another
  /// GPU's.
  void hold(executor::GpuStream stream, std::shared_ptr<std::atomic<bool>> open);

  /// Streams and events that exist.
  [[nodiscard]] std::size_t living() const { return living_; }

  [[nodiscard]] std::size_t most_living_events() const { return most_living_events_; }

  /// Waits between streams, over all runs.
  [[nodiscard]] std::size_t waits() const { return waits_; }

 private:
  /// What one record() made; waits for it hold it, whatever the event is recorded for later.
  struct Moment {
    bool hangs = false;
    std::uint32_t looks_left = 0;
    ir::Nanos at = 0;
    std::vector<std::shared_ptr<Moment>> after;         ///< what must be done before
    std::shared_ptr<std::atomic<bool>> open = nullptr;  ///< null: waits for nobody else
  };

  struct EventState {
    std::uint32_t gpu = 0;
    std::shared_ptr<Moment> moment;  ///< null: never recorded
  };

  struct StreamState {
    std::uint32_t gpu = 0;
    std::shared_ptr<Moment> last;
    std::vector<std::shared_ptr<Moment>> waits;
  };

  [[nodiscard]] static bool look(Moment& moment);
  [[nodiscard]] ir::Status fault() const;

  Options options_;
  std::vector<std::unique_ptr<EventState>> events_;
  std::vector<std::unique_ptr<StreamState>> streams_;
  std::uint32_t records_ = 0;
  ir::Nanos clock_ = 0;
  std::size_t living_ = 0;
  std::size_t living_events_ = 0;
  std::size_t most_living_events_ = 0;
  std::size_t waits_ = 0;
};

}  // namespace xpipe::tests
