// One of two processes that share a schedule, both played by threads of this one.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "executor/device.h"
#include "executor/remote_tasks.h"
#include "ir/schedule.h"

namespace xpipe::tests {

using executor::Backend;
using executor::Event;
using ir::TaskId;

/// One of two processes: it runs the devices d with d mod 2 == rank.
class Half final : public executor::RemoteTasks {
 public:
  explicit Half(std::uint32_t rank) : rank_(rank) {}

  void join(Half& other) { other_ = &other; }

  [[nodiscard]] bool is_local(ir::DeviceId device) const override {
    return ir::index_of(device) % 2 == rank_;
  }

  [[nodiscard]] std::string owner(ir::DeviceId device) const override {
    return "rank " + std::to_string(ir::index_of(device) % 2);
  }

  void attach(const ir::Schedule& schedule, Backend& backend) override {
    const std::lock_guard lock(mutex_);
    schedule_ = &schedule;
    backend_ = &backend;
    for (const TaskId task : early_) {
      complete(task);
    }
    early_.clear();
    if (failure_) {
      backend.stop(*failure_);
    }
  }

  ir::Status done(TaskId task) override {
    other_->hear(task);
    return {};
  }

  void detach() override {
    const std::lock_guard lock(mutex_);
    backend_ = nullptr;
  }

  void stop(const ir::Error& reason) {
    const std::lock_guard lock(mutex_);
    failure_ = reason;
    if (backend_ != nullptr) {
      backend_->stop(reason);
    }
  }

 private:
  void hear(TaskId task) {
    const std::lock_guard lock(mutex_);
    if (backend_ == nullptr) {
      early_.push_back(task);
    } else {
      complete(task);
    }
  }

  /// Only those that were announced; the other one tells everything that crosses.
  void complete(TaskId task) { backend_->complete(Event{task}); }

  const std::uint32_t rank_;
  Half* other_ = nullptr;
  std::mutex mutex_;
  const ir::Schedule* schedule_ = nullptr;
  Backend* backend_ = nullptr;
  std::vector<TaskId> early_;
  std::optional<ir::Error> failure_;
};

}  // namespace xpipe::tests
