// The readers of user files, as the fuzzer sees them: a text goes in, and what must hold of every
// reader is checked on the way out.
//
//   refused    ErrorKind BadInput or Illegal, at least one diagnostic, each with a code, a place in
//              the file and a message, all of them single lines of valid UTF-8
//   accepted   the value, written by us and read again, is an equal value
//   either     heap use is bounded by a multiple of the input's size, whatever numbers it holds
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/status.h"
#include "tests/fuzz/allocation_meter.h"
#include "tests/fuzz/mutate.h"

namespace xpipe::fuzz {

/// What became of one input.
struct Verdict {
  bool accepted = false;
  HeapUse heap;        ///< of the reader alone
  std::string broken;  ///< which claim does not hold, and how; empty: all hold
};

struct Reader {
  std::string name;
  Grain grain = Grain::Json;
  std::vector<std::string> seeds;  ///< legal files, small, with every key and form
  std::function<Verdict(std::string_view text)> read;
};

/// What readers are told the file is called: every place must begin with it.
inline constexpr std::string_view kFileName = "fuzz.in";

/// A reader may hold kHeapBase + kHeapFactor x the input's size, and ask for kWorkFactor times that
/// in all. The factor is that of the worst small thing: a layer "{}," of three bytes lacks six
/// keys, and each fault is three strings. Files that people have take a tenth of it.
inline constexpr std::size_t kHeapBase = 64 * 1024;
inline constexpr std::size_t kHeapFactor = 1000;
inline constexpr std::size_t kWorkFactor = 4;

/// What is wrong with a refusal; empty: nothing.
[[nodiscard]] std::string fault_of(const ir::Error& error);

/// What is wrong with the heap used for `bytes` of input; empty: nothing.
[[nodiscard]] std::string fault_of(const HeapUse& heap, std::size_t bytes);

/// Reads, and lets `check` look at what was accepted (it returns what is wrong, or "").
template <typename Read, typename Check>
Verdict judged(std::string_view text, Read&& read, Check&& check) {
  Verdict verdict;
  const AllocationMeter meter;
  const auto result = read(text);
  verdict.heap = meter.use();
  verdict.accepted = result.ok();
  verdict.broken = result.ok() ? check(result.value()) : fault_of(result.error());
  if (verdict.broken.empty()) {
    verdict.broken = fault_of(verdict.heap, text.size());
  }
  return verdict;
}

/// Every reader of the libraries that need no LibTorch.
[[nodiscard]] const std::vector<Reader>& readers();

}  // namespace xpipe::fuzz
