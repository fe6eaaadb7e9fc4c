// Feeds a reader with mutated files and tells which one broke it, small, and how to see it again.
//
//   XPIPE_FUZZ_SEED=7      another set of inputs (default 1)
//   XPIPE_FUZZ_INPUTS=N    more or fewer of them (default 100,000 a reader)
//   XPIPE_FUZZ_CASE=4711   only that one
//
// A crash or an input that takes more than kMostSeconds of processor time ends the program, with
// the same words on stderr: there is nothing to go on with.
#pragma once

#include <cstdint>
#include <string>

#include "tests/fuzz/reader.h"

namespace xpipe::fuzz {

struct Campaign {
  std::uint64_t inputs = 0;
  std::uint64_t accepted = 0;
  double most_heap_per_byte = 0.0;  ///< over inputs of at least 1 KiB
  std::string broken;  ///< of the first input that broke a claim: what, and how to rerun
};

/// Processor time, so that a busy machine does not matter. Inputs take microseconds.
inline constexpr int kMostSeconds = 20;

[[nodiscard]] Campaign run_campaign(const Reader& reader);

/// The inputs that break at every byte: each prefix of each seed, and each seed with one bit of one
/// byte flipped.
[[nodiscard]] Campaign run_every_byte(const Reader& reader);

/// That input alone; it is not made smaller.
[[nodiscard]] Campaign run_one(const Reader& reader, const std::string& text);

/// `text` with a backslash for what cannot be seen.
[[nodiscard]] std::string escaped(std::string_view text);

}  // namespace xpipe::fuzz
