// The threads of the cpu backend, one per device. They live as long as the pool, over any number of
// runs, so that what a thread keeps (torch's thread-local settings, warm caches and allocators)
// survives from one epoch to the next. The caller owns the pool, backends borrow it.
//
//   auto pool = CpuPool::create({.devices = 4, .on_thread_start = set_intra_op_threads});
//   CpuBackend backend(*pool.value());
//   for (epoch ...) run(schedule, handlers, backend);
//
// Thread-safety: one run at a time; all functions but idle() and wait_idle_for() from one thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ir/ids.h"
#include "ir/status.h"

namespace xpipe::executor {

struct CpuPoolOptions {
  std::uint32_t devices = 1;
  /// Called once in each thread before create() returns; may throw.
  std::function<void(ir::DeviceId)> on_thread_start = {};
  /// Pins device d's thread, and what it starts, to the processors pin_to[d mod size]; empty: the
  /// system places the threads. See executor/cpu/processors.h.
  std::vector<std::vector<std::uint32_t>> pin_to = {};
};

class CpuPool {
 public:
  /// What one device does in a run. Must not throw.
  using Job = std::function<void(ir::DeviceId)>;

  /// Errors: Runtime "thread-start" when a thread, its pinning or on_thread_start fails.
  [[nodiscard]] static ir::Result<std::unique_ptr<CpuPool>> create(CpuPoolOptions options);

  CpuPool(const CpuPool&) = delete;
  CpuPool& operator=(const CpuPool&) = delete;

  /// Waits for a job that is still running, however long that takes.
  ~CpuPool();

  [[nodiscard]] std::uint32_t devices() const { return devices_; }

  /// Runs `job` for the devices 0 ... `devices` - 1, each in its thread. Requires: idle, and
  /// devices <= devices(). The job is destroyed before the pool is idle again.
  void start(Job job, std::uint32_t devices);

  [[nodiscard]] bool idle() const;

  /// True as soon as no job is running; false when `limit` is over before.
  [[nodiscard]] bool wait_idle_for(std::chrono::nanoseconds limit) const;

 private:
  explicit CpuPool(std::uint32_t devices) : devices_(devices) {}

  void serve(ir::DeviceId device, const CpuPoolOptions& options);
  void set_failure(ir::DeviceId device, const std::string& what);
  void finish_one();

  const std::uint32_t devices_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;  ///< a job begins, or the pool closes
  mutable std::condition_variable idle_;
  Job job_;
  std::uint32_t job_devices_ = 0;
  std::uint64_t generation_ = 0;  ///< counts jobs
  std::uint32_t running_ = 0;     ///< threads that have not finished the job (or their start)
  bool closing_ = false;
  std::optional<ir::Error> failure_;  ///< the first thread that could not start
  std::vector<std::thread> threads_;  ///< by DeviceId
};

}  // namespace xpipe::executor
