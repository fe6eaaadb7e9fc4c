// Exact scaling of integers: times and bytes are multiplied and divided as whole numbers of any
// needed width and rounded once, so that the same input gives the same nanosecond on every machine.
#pragma once

#include <cstdint>
#include <limits>

namespace xpipe::scheduler {

/// What a result that fits no 64 bits becomes.
inline constexpr std::int64_t kTooLarge = std::numeric_limits<std::int64_t>::max();

/// value * numerator / (denominator * divisor), rounded half up to a whole number; exact, a double
/// being the binary fraction that it is. kTooLarge when it does not fit.
/// Requires: value >= 0, denominator > 0, divisor > 0 and finite.
///
///   scale_half_up(7, 1, 2, 1.0) == 4        3.5 goes up
///   scale_half_up(10, 1, 4, 0.5) == 5       a device of half the speed takes twice as long
[[nodiscard]] std::int64_t scale_half_up(std::int64_t value,
                                         std::uint32_t numerator,
                                         std::uint64_t denominator,
                                         double divisor);

/// value * count; kTooLarge when it does not fit or `value` is. Requires: value >= 0.
[[nodiscard]] std::int64_t capped_product(std::int64_t value, std::uint32_t count);

/// a + b, likewise. Requires: a, b >= 0.
[[nodiscard]] constexpr std::int64_t capped_sum(std::int64_t a, std::int64_t b) {
  return b > kTooLarge - a ? kTooLarge : a + b;
}

inline constexpr std::uint32_t kNanosPerSecond = 1'000'000'000;

}  // namespace xpipe::scheduler
