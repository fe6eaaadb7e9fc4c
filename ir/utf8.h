// Whether bytes are UTF-8, and how to show those that may not be: readers of text files refuse what
// is not UTF-8, so that no name can make our own output unreadable later, and their messages show
// what they found as text that no terminal or log can trip over.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace xpipe::ir {

/// Where the first byte stands that does not belong (overlong forms, surrogates and code points
/// beyond U+10FFFF included), from 0; nothing when all is well.
[[nodiscard]] std::optional<std::size_t> invalid_utf8_at(std::string_view text);

/// `text` as one line of UTF-8, for messages: control characters and bytes that are not UTF-8
/// become
/// \n, \x1B, \xFF; of more than kMostShownBytes the middle is left out.
[[nodiscard]] std::string one_line(std::string_view text);

inline constexpr std::size_t kMostShownBytes = 500;

}  // namespace xpipe::ir
