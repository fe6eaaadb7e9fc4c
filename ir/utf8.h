// Whether bytes are UTF-8: readers of text files refuse what is not, so that no name can make our
// own output unreadable later.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace xpipe::ir {

/// Where the first byte stands that does not belong (overlong forms, surrogates and code points
/// beyond U+10FFFF included), from 0; nothing when all is well.
[[nodiscard]] std::optional<std::size_t> invalid_utf8_at(std::string_view text);

}  // namespace xpipe::ir
