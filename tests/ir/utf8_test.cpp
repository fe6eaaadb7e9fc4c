#include "ir/utf8.h"

#include <string_view>
#include <vector>

#include <doctest/doctest.h>

namespace xpipe::ir {

TEST_CASE("utf8: what Unicode's table 3-7 allows is fine") {
  for (const std::string_view text :
       {"", "plain", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEF\xBF\xBF",
        "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "a\xC3\xA9z"}) {
    CAPTURE(text.size());
    CHECK_FALSE(invalid_utf8_at(text).has_value());
  }
}

TEST_CASE("utf8: everything else is found where it begins") {
  struct Case {
    std::string_view text;
    std::size_t at;
  };

  for (const Case& c : std::vector<Case>{{"\xFF", 0},
                                         {"ab\x80", 2},
                                         {"a\xC3", 1},
                                         {"\xC0\x80", 0},          // overlong
                                         {"\xE0\x9F\xBF", 0},      // overlong
                                         {"\xED\xA0\x80", 0},      // surrogate
                                         {"\xF0\x8F\xBF\xBF", 0},  // overlong
                                         {"\xF4\x90\x80\x80", 0},  // beyond U+10FFFF
                                         {"\xF5\x80\x80\x80", 0},
                                         {"ok\xE2\x82z", 2}}) {
    REQUIRE(invalid_utf8_at(c.text).has_value());
    CHECK_EQ(*invalid_utf8_at(c.text), c.at);
  }
}

}  // namespace xpipe::ir
