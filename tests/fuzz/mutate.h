// Breaks files the way people, editors, disks and other programs do. Every mutation is drawn from a
// Random alone, so an input is known by its seed and its number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xpipe::fuzz {

/// splitmix64 (Steele, Lea, Flood, OOPSLA'14): the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }

  /// Below `count`, which is greater than 0.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }

  bool one_in(std::size_t count) { return below(count) == 0; }

 private:
  std::uint64_t state_;
};

/// What a file is made of decides what breaks it.
enum class Grain : std::uint8_t {
  Json,    ///< values, members, items, numbers, strings
  Lines,   ///< lines, words, numbers
  Binary,  ///< bytes and big-endian counts
};

/// One to six mutations of one of the seeds. Requires: seeds are not empty.
[[nodiscard]] std::string mutated(const std::vector<std::string>& seeds,
                                  Grain grain,
                                  Random& random);

/// Longer inputs are cut.
inline constexpr std::size_t kMaxInputBytes = std::size_t{1} << 16U;

/// The numbers, literals and strings that a reader must not be taken in by, as they are written.
[[nodiscard]] const std::vector<std::string>& evil_values();

}  // namespace xpipe::fuzz
