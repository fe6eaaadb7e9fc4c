// Decimal numbers in files and the whole numbers they stand for: microseconds and milliseconds with
// decimals become integer nanoseconds without passing through floating point.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/ids.h"

namespace xpipe::ir {

[[nodiscard]] constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

struct ScaledDecimal {
  std::int64_t value = 0;
  bool exact = true;  ///< false: rounded
};

/// `text` (decimal digits, a point, an exponent as JSON has them) times 10^places, rounded half up
/// (half away from zero below it). Nothing when it is no such number or does not fit in 64 bits.
/// scaled_decimal("12.3456", 3) is {12346, false}.
[[nodiscard]] std::optional<ScaledDecimal> scaled_decimal(std::string_view text, int places);

/// Nanoseconds as microseconds with as many decimals as needed, at most three: "12.5".
/// scaled_decimal(micros_text(t), 3) is t exactly.
[[nodiscard]] std::string micros_text(Nanos time);

/// The shortest text that reads back as the same number: "8", "0.5", "1e+30"; "inf" and "nan", too.
[[nodiscard]] std::string number_text(double number);

}  // namespace xpipe::ir
