#include "executor/stop_state.h"

#include <utility>

namespace xpipe::executor {

void StopState::begin_run() {
  const std::lock_guard lock(mutex_);
  first_ = stop_reason_;
  stopping_.store(first_.has_value(), std::memory_order_release);
}

void StopState::fail(ir::Error error) {
  const std::lock_guard lock(mutex_);
  if (!first_) {
    first_ = std::move(error);
    stopping_.store(true, std::memory_order_release);
  }
}

void StopState::stop(ir::Error reason) {
  const std::lock_guard lock(mutex_);
  if (!stop_reason_) {
    stop_reason_ = std::move(reason);
  }
  if (!first_) {
    first_ = stop_reason_;
    stopping_.store(true, std::memory_order_release);
  }
}

ir::Status StopState::status() const {
  const std::lock_guard lock(mutex_);
  return first_ ? ir::Status(*first_) : ir::Status();
}

}  // namespace xpipe::executor
