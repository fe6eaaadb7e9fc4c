#include "executor/cpu/cpu_pool.h"

#include <exception>
#include <string>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <sched.h>

namespace xpipe::executor {

namespace {

using ir::DeviceId;
using ir::index_of;

/// Empty, or what went wrong.
std::string pin_this_thread(const std::vector<std::uint32_t>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string names;
  for (const std::uint32_t processor : processors) {
    if (processor >= CPU_SETSIZE) {
      return "cannot be pinned to processor " + std::to_string(processor) +
             ": the system counts to " + std::to_string(CPU_SETSIZE - 1);
    }
    CPU_SET(processor, &set);
    names += (names.empty() ? "" : ", ") + std::to_string(processor);
  }
  const int failed = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
  return failed == 0 ? ""
                     : "cannot be pinned to processor " + names + ": " +
                           std::generic_category().message(failed);
}

}  // namespace

ir::Result<std::unique_ptr<CpuPool>> CpuPool::create(CpuPoolOptions options) {
  std::unique_ptr<CpuPool> pool(new CpuPool(options.devices));
  pool->running_ = options.devices;
  pool->threads_.reserve(options.devices);
  for (std::uint32_t i = 0; i < options.devices; ++i) {
    const DeviceId device{static_cast<std::uint16_t>(i)};
    try {
      pool->threads_.emplace_back(
          [&pool = *pool, &options, device] { pool.serve(device, options); });
    } catch (const std::system_error& error) {
      pool->set_failure(device, std::string("cannot be started: ") + error.what());
      for (; i < options.devices; ++i) {
        pool->finish_one();
      }
    }
  }
  // `options` is used by the threads until they have started.
  std::unique_lock lock(pool->mutex_);
  pool->idle_.wait(lock, [&pool] { return pool->running_ == 0; });
  if (pool->failure_) {
    ir::Error failure = *pool->failure_;
    lock.unlock();
    return failure;
  }
  lock.unlock();
  return pool;
}

CpuPool::~CpuPool() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void CpuPool::start(Job job, std::uint32_t devices) {
  XPIPE_CHECK(devices <= devices_) << devices << " devices on a pool of " << devices_;
  if (devices == 0) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    XPIPE_CHECK(running_ == 0) << "a pool runs one job at a time";
    job_ = std::move(job);
    job_devices_ = devices;
    running_ = devices;
    ++generation_;
  }
  changed_.notify_all();
}

bool CpuPool::idle() const {
  const std::lock_guard lock(mutex_);
  return running_ == 0;
}

bool CpuPool::wait_idle_for(std::chrono::nanoseconds limit) const {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, limit, [this] { return running_ == 0; });
}

void CpuPool::serve(DeviceId device, const CpuPoolOptions& options) {
  if (!options.pin_to.empty()) {
    const std::size_t at = index_of(device) % options.pin_to.size();
    if (const std::string what = pin_this_thread(options.pin_to[at]); !what.empty()) {
      set_failure(device, what);
    }
  }
  if (options.on_thread_start) {
    try {
      options.on_thread_start(device);
    } catch (const std::exception& exception) {
      set_failure(device, std::string("on_thread_start: ") + exception.what());
    } catch (...) {
      set_failure(device, "on_thread_start threw something that is no std::exception");
    }
  }
  finish_one();  // `options` may be gone from here on

  std::uint64_t served = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const auto has_job = [&] { return generation_ != served && index_of(device) < job_devices_; };
      changed_.wait(lock, [&] { return closing_ || has_job(); });
      if (!has_job()) {
        return;
      }
      served = generation_;
    }
    job_(device);  // nobody touches job_ before all have finished it
    finish_one();
  }
}

void CpuPool::set_failure(DeviceId device, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!failure_) {
    failure_ = ir::make_error(ir::ErrorKind::Runtime, "thread-start",
                              "device " + std::to_string(index_of(device)), "its thread " + what);
  }
}

void CpuPool::finish_one() {
  const std::lock_guard lock(mutex_);
  if (--running_ == 0) {
    job_ = nullptr;
    idle_.notify_all();
  }
}

}  // namespace xpipe::executor
