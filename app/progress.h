// A progress line on stderr for people: redrawn in place on a terminal, and nothing on anything
// else (design.md §8), so that a log holds no control characters. (Neither Debian bookworm nor PyPI
// ships a C++ progress-bar library.)
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace xpipe::app {

/// Not thread-safe; one at a time.
class Progress {
 public:
  /// `total` units of work, e.g. mini-batches. Draws nothing yet.
  Progress(std::string label, std::uint64_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Wipes the line.
  ~Progress();

  /// `done` of the total, with a remark such as "loss 0.31". Cheap: draws at most ten times a
  /// second.
  void update(std::uint64_t done, const std::string& remark);

  /// Wipes the line so that a result can be printed; the next update draws it again.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  std::uint64_t total_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point last_;
};

}  // namespace xpipe::app
