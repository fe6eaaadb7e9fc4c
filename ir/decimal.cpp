#include "ir/decimal.h"

#include <charconv>
#include <iterator>
#include <limits>

namespace xpipe::ir {

namespace {

constexpr int kMaxExponent = 1000;  // beyond it every number is 0 or too large

/// The digits of a decimal without its point: digits x 10^exponent.
struct Parts {
  bool negative = false;
  std::string digits;
  int exponent = 0;
};

std::optional<Parts> parts_of(std::string_view text) {
  Parts parts;
  std::size_t i = 0;
  if (i < text.size() && text[i] == '-') {
    parts.negative = true;
    ++i;
  }
  const std::size_t begin = i;
  while (i < text.size() && is_digit(text[i])) {
    parts.digits += text[i++];
  }
  if (i == begin) {
    return std::nullopt;
  }
  if (i < text.size() && text[i] == '.') {
    const std::size_t point = i++;
    while (i < text.size() && is_digit(text[i])) {
      parts.digits += text[i++];
    }
    if (i == point + 1 || i - point > kMaxExponent) {
      return std::nullopt;
    }
    parts.exponent = -static_cast<int>(i - point - 1);
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    i += i < text.size() && text[i] == '+' ? 1 : 0;
    int exponent = 0;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data() + i, end, exponent);
    if (result.ec != std::errc{} || exponent > kMaxExponent || exponent < -kMaxExponent) {
      return std::nullopt;
    }
    i = static_cast<std::size_t>(result.ptr - text.data());
    parts.exponent += exponent;
  }
  return i == text.size() ? std::optional(parts) : std::nullopt;
}

}  // namespace

std::optional<ScaledDecimal> scaled_decimal(std::string_view text, int places) {
  const std::optional<Parts> parts = parts_of(text);
  if (!parts) {
    return std::nullopt;
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  // Digits left of the wanted last place count; of the others the first one rounds.
  const int shift = parts->exponent + places;
  const auto kept = static_cast<int>(parts->digits.size()) + (shift < 0 ? shift : 0);
  ScaledDecimal out;
  const auto push = [&out](int digit) {
    if (out.value > (kMost - digit) / 10) {
      return false;
    }
    out.value = out.value * 10 + digit;
    return true;
  };
  for (int i = 0; i < kept; ++i) {
    if (!push(parts->digits[static_cast<std::size_t>(i)] - '0')) {
      return std::nullopt;
    }
  }
  for (int i = 0; i < shift && out.value != 0; ++i) {
    if (!push(0)) {
      return std::nullopt;
    }
  }
  for (std::size_t i = kept > 0 ? static_cast<std::size_t>(kept) : 0; i < parts->digits.size();
       ++i) {
    out.exact = out.exact && parts->digits[i] == '0';
  }
  if (kept >= 0 && kept < static_cast<int>(parts->digits.size()) &&
      parts->digits[static_cast<std::size_t>(kept)] >= '5') {
    if (out.value == kMost) {
      return std::nullopt;
    }
    ++out.value;
  }
  out.value = parts->negative ? -out.value : out.value;
  return out;
}

std::string micros_text(Nanos time) {
  const std::int64_t whole = time / 1000;
  std::int64_t rest = time % 1000;
  std::string text = time < 0 && whole == 0 ? "-0" : std::to_string(whole);
  rest = rest < 0 ? -rest : rest;
  if (rest != 0) {
    std::string decimals = std::to_string(1000 + rest).substr(1);
    decimals.erase(decimals.find_last_not_of('0') + 1);
    text += "." + decimals;
  }
  return text;
}

std::string number_text(double number) {
  char buffer[32];
  const auto end = std::to_chars(std::begin(buffer), std::end(buffer), number).ptr;
  return {std::begin(buffer), end};
}

}  // namespace xpipe::ir
