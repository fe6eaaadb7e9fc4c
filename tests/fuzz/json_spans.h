// Where the parts of a JSON text are, found leniently: the text may be broken already. For
// tests/fuzz/mutate.cpp.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace xpipe::fuzz {

/// [begin, end) in bytes.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct JsonSpans {
  std::vector<Span> values;  ///< every value, the outermost included; never empty ones
  std::vector<Span> items;   ///< members and array items, with the comma after them if there is one
  std::vector<Span> keys;    ///< with their quotes
};

[[nodiscard]] JsonSpans json_spans(std::string_view text);

}  // namespace xpipe::fuzz
