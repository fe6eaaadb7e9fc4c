#include "policies/version_difference.h"

#include "ir/status.h"

namespace xpipe::policies {
namespace {

/// numerator / denominator, both non-negative, to a whole number.
std::int64_t round_quotient(std::int64_t numerator, std::int64_t denominator, Rounding rounding) {
  const std::int64_t whole = numerator / denominator;
  const std::int64_t twice_rest = 2 * (numerator % denominator);
  switch (rounding) {
    case Rounding::Floor:
      return whole;
    case Rounding::HalfEven:
      return whole + (twice_rest > denominator || (twice_rest == denominator && whole % 2 == 1));
    case Rounding::HalfUp:
      return whole + (twice_rest >= denominator);
  }
  XPIPE_CHECK(false) << "rounding " << static_cast<int>(rounding) << " does not exist";
  return 0;
}

std::int64_t ceil_quotient(std::int64_t numerator, std::int64_t denominator) {
  return (numerator + denominator - 1) / denominator;
}

Distances distances(std::int64_t forward, std::int64_t backward) {
  return {static_cast<ir::Distance>(forward), static_cast<ir::Distance>(backward)};
}

}  // namespace

Distances version_difference(VersionDifference mode,
                             Rounding rounding,
                             std::uint32_t stages,
                             std::uint32_t micro_batches,
                             std::uint32_t stage) {
  const std::int64_t d = stages;
  const std::int64_t t = micro_batches;
  const std::int64_t k = stage;
  const std::int64_t local = ceil_quotient(d - 1 - k, t);
  const std::int64_t beyond = ceil_quotient(k, 2 * t);
  switch (mode) {
    case VersionDifference::Paper:
      // k/2 is not floored in the forward formula, so that it is taken over 2T.
      return distances(round_quotient(2 * d + 2 * t - k - 4, 2 * t, rounding),
                       round_quotient(t + k / 2 - 1, t, rounding));
    case VersionDifference::Horizon:
      return distances(local + beyond, beyond);
    case VersionDifference::Local:
      return distances(local, 0);
  }
  XPIPE_CHECK(false) << "version difference " << static_cast<int>(mode) << " does not exist";
  return {};
}

}  // namespace xpipe::policies
