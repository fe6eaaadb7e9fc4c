// Work whose speed changes while it runs: a transfer that shares its link, compute that a transfer
// slows down. Fixed point, so that two replays that look at it at different moments agree to the
// nanosecond, and that nothing depends on when it began.
//
//   work   what it takes at full speed, in 2^-32 ns
//   speed  at most 1, in 2^-32; work goes down by speed every ns, the end is rounded up to whole ns
#pragma once

#include <cstdint>

#include "ir/ids.h"

namespace xpipe::scheduler {

/// In 2^-32 of full speed; > 0.
using Speed = std::uint64_t;

inline constexpr int kSpeedBits = 32;
inline constexpr Speed kFullSpeed = Speed{1} << kSpeedBits;

/// Full speed over `factor` (>= 1), rounded up: what takes 100 ns takes 300 with factor 3, not 301.
[[nodiscard]] Speed slowed(double factor);

class Progress {
 public:
  Progress() = default;

  /// Starts at `now`, with full speed; alone it takes `duration`.
  Progress(ir::Nanos now, ir::Nanos duration) : since_(now), left_(duration) {}

  /// From `now` on it goes on at `speed`. Requires: now is not before the last change, nor after
  /// end().
  void set_speed(ir::Nanos now, Speed speed);

  [[nodiscard]] Speed speed() const { return speed_; }

  /// When it is done, if the speed stays; at most kTooLarge.
  [[nodiscard]] ir::Nanos end() const;

  struct Left {
    ir::Nanos whole = 0;         ///< ns at full speed
    std::uint32_t fraction = 0;  ///< and 2^-32 ns

    bool operator==(const Left&) const = default;
  };

  /// What is left at `now`.
  [[nodiscard]] Left left(ir::Nanos now) const;

 private:
  ir::Nanos since_ = 0;
  ir::Nanos left_ = 0;          ///< at since_, whole ns
  std::uint32_t fraction_ = 0;  ///< and 2^-32 ns
  Speed speed_ = kFullSpeed;
};

}  // namespace xpipe::scheduler
