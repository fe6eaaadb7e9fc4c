#include "app/progress.h"

#include <algorithm>
#include <iostream>

#include <fmt/format.h>
#include <unistd.h>

namespace xpipe::app {

namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::uint64_t kBarWidth = 30;

}  // namespace

Progress::Progress(std::string label, std::uint64_t total)
    : label_(std::move(label)),
      total_(std::max<std::uint64_t>(1, total)),
      terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  clear();
}

void Progress::update(std::uint64_t done, const std::string& remark) {
  const Clock::time_point now = Clock::now();
  if (!terminal_ || (drawn_ && now - last_ < kRedraw)) {
    return;
  }
  last_ = now;
  drawn_ = true;
  const std::uint64_t shown = std::min(done, total_);
  const std::size_t filled = static_cast<std::size_t>(kBarWidth * shown / total_);
  std::cerr << fmt::format("\r\x1b[K{} [{:=<{}}{: <{}}] {:3}% {}", label_, "", filled, "",
                           kBarWidth - filled, 100 * shown / total_, remark)
            << std::flush;
}

void Progress::clear() {
  if (drawn_) {
    std::cerr << "\r\x1b[K" << std::flush;
    drawn_ = false;
  }
}

}  // namespace xpipe::app
