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

}  // namespace xpipe::scheduler
