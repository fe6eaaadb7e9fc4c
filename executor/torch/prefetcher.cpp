#include "executor/torch/prefetcher.h"

#include <algorithm>
#include <utility>

namespace xpipe::executor::nn {

Prefetcher::Prefetcher(std::size_t depth, std::chrono::milliseconds time_out)
    : depth_(depth), time_out_(time_out) {
  XPIPE_CHECK(depth >= 1) << "a prefetcher without room";
}

Prefetcher::~Prefetcher() {
  stop();
}

void Prefetcher::begin(std::size_t pieces, std::vector<std::size_t> order, Load load) {
  stop();
  load_ = std::move(load);
  order_ = std::move(order);
  place_ = 0;
  states_.assign(pieces, State::ToDo);
  asked_.clear();
  ready_ = 0;
  stopping_ = false;
  failed_ = {};
  thread_ = std::thread([this] { run(); });
}

void Prefetcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::optional<std::size_t> Prefetcher::next() const {
  if (!asked_.empty()) {
    return asked_.front();
  }
  if (ready_ >= depth_ || place_ >= order_.size()) {
    return std::nullopt;
  }
  return order_[place_];
}

void Prefetcher::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    while (place_ < order_.size() && states_[order_[place_]] != State::ToDo) {
      ++place_;
    }
    const std::optional<std::size_t> piece = next();
    if (stopping_ || !failed_.ok()) {
      return;
    }
    if (!piece) {
      changed_.wait(lock);
      continue;
    }
    std::erase(asked_, *piece);
    states_[*piece] = State::Loading;
    lock.unlock();
    ir::Status status = load_(*piece);
    lock.lock();
    if (status.ok()) {
      states_[*piece] = State::Ready;
      ++ready_;
    } else {
      failed_ = std::move(status);
    }
    changed_.notify_all();
  }
}

/// What the loader is doing, in words. Requires: mutex_.
std::string Prefetcher::at_work() const {
  const auto loading = std::ranges::find(states_, State::Loading);
  return loading == states_.end()
             ? std::string("reading nothing")
             : "still reading those of micro-batch " + std::to_string(loading - states_.begin());
}

ir::Status Prefetcher::take(std::size_t piece) {
  std::unique_lock lock(mutex_);
  if (states_.at(piece) == State::ToDo && std::ranges::find(asked_, piece) == asked_.end()) {
    asked_.push_back(piece);
    changed_.notify_all();
  }
  const bool in_time = changed_.wait_for(lock, time_out_, [&] {
    return stopping_ || !failed_.ok() || states_[piece] == State::Ready ||
           states_[piece] == State::Taken;
  });
  if (states_[piece] == State::Ready) {
    states_[piece] = State::Taken;
    --ready_;
    changed_.notify_all();
    return {};
  }
  if (!failed_.ok()) {
    return failed_;
  }
  if (!in_time) {
    return ir::make_error(ir::ErrorKind::Runtime, "loader-time-out", "data",
                          "the first stage waited " + std::to_string(time_out_.count()) +
                              " ms for the loader to read the samples of micro-batch " +
                              std::to_string(piece) + ", and it is " + at_work() +
                              "; is the disk slow or gone? --timeout-s allows more");
  }
  return ir::make_error(ir::ErrorKind::Internal, "loader-stopped", "data",
                        states_[piece] == State::Taken
                            ? "micro-batch " + std::to_string(piece) + " was taken before"
                            : "the loader was stopped");
}

}  // namespace xpipe::executor::nn
