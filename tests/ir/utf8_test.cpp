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

TEST_CASE("utf-8: what a message shows is one line, and nothing that a terminal obeys") {
  struct Case {
    std::string_view text;
    std::string_view shown;
  };

  for (const Case& c : std::vector<Case>{
           {"", ""},
           {"caf\xC3\xA9 \xE6\xBC\xA2", "caf\xC3\xA9 \xE6\xBC\xA2"},
           {"a\nb\tc", "a\\nb\\x09c"},
           {"\x1B[31mred\x7F", "\\x1B[31mred\\x7F"},
           {"\xFF\xC3", "\\xFF\\xC3"},
           {"\xC3(", "\\xC3("},
       }) {
    CHECK_EQ(one_line(c.text), c.shown);
  }
}

TEST_CASE("utf-8: of a long text a message shows the beginning and the end, in whole characters") {
  for (const std::string_view piece : {"x", "\xE6\xBC\xA2", "\xFF"}) {
    std::string text = "begin";
    for (int i = 0; i < 100'000; ++i) {
      text += piece;
    }
    const std::string shown = one_line(text + "end");
    CHECK(shown.size() <= kMostShownBytes);
    CHECK(shown.starts_with("begin"));
    CHECK(shown.ends_with("end"));
    CHECK(shown.find(" ... ") != std::string::npos);
    CHECK_FALSE(invalid_utf8_at(shown).has_value());
  }
}

}  // namespace xpipe::ir
