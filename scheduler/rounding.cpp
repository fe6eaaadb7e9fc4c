#include "scheduler/rounding.h"

#include <cmath>

#include "ir/status.h"

namespace xpipe::scheduler {

namespace {

__extension__ using Wide = unsigned __int128;

constexpr int kMantissaBits = std::numeric_limits<double>::digits;

}  // namespace

std::int64_t scale_half_up(std::int64_t value,
                           std::uint32_t numerator,
                           std::uint64_t denominator,
                           double divisor) {
  XPIPE_CHECK(value >= 0 && denominator > 0 && std::isfinite(divisor) && divisor > 0)
      << value << " * " << numerator << " / (" << denominator << " * " << divisor << ")";
  // divisor = mantissa * 2^exponent, the mantissa odd.
  int exponent = 0;
  auto mantissa =
      static_cast<std::uint64_t>(std::ldexp(std::frexp(divisor, &exponent), kMantissaBits));
  exponent -= kMantissaBits;
  while (mantissa % 2 == 0) {
    mantissa /= 2;
    ++exponent;
  }
  const Wide dividend = static_cast<Wide>(value) * numerator;  // < 2^95
  Wide whole = static_cast<Wide>(denominator) * mantissa;      // < 2^117
  for (; exponent > 0; --exponent) {
    if (whole > dividend) {  // less than one, halved once more: less than a half
      return 0;
    }
    whole *= 2;
  }
  Wide quotient = dividend / whole;
  Wide rest = dividend % whole;
  constexpr auto kLimit = static_cast<Wide>(kTooLarge);
  for (; exponent < 0; ++exponent) {  // long division, one binary digit at a time
    if (quotient > kLimit) {
      return kTooLarge;
    }
    rest *= 2;
    quotient *= 2;
    if (rest >= whole) {
      rest -= whole;
      ++quotient;
    }
  }
  if (2 * rest >= whole) {
    ++quotient;
  }
  return quotient > kLimit ? kTooLarge : static_cast<std::int64_t>(quotient);
}

std::int64_t capped_product(std::int64_t value, std::uint32_t count) {
  return value == kTooLarge ? kTooLarge : scale_half_up(value, count, 1, 1.0);
}

}  // namespace xpipe::scheduler
