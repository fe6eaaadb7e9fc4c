#include "ir/strict_json.h"

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

namespace xpipe::ir {

namespace {

std::string refusal(std::string_view text) {
  const Result<JsonValue> value = parse_json(text, "f.json");
  return value.ok() ? "" : value.error().to_string();
}

}  // namespace

TEST_CASE("strict json: what is not JSON is refused with line and column") {
  struct Case {
    std::string_view text;
    std::string_view says;
  };

  for (const Case& c : std::vector<Case>{
           {"", "f.json: line 1, column 1: not JSON"},
           {"{\n  \"a\": NaN}", "f.json: line 2, column 8: not JSON"},
           {"{\n  \"a\": NaN}", "found NaN, expected a finite number"},
           {"{\"a\": -Infinity}", "found -Infinity, expected a finite number"},
           {"{\"a\": nonsense}", "found \"nonsense\""},
           {"{\"a\": 12", "the file ends here: was it cut?"},
           {"[\x7F]", "last read: '[\\x7F'"},
           {"{\r\n\"a\": Infinity}", "line 2"},
           {"[1,\n2,,3]", "f.json: line 2, column 3"},
           {"[1, 2", "not JSON"},
           {"{\"a\": 1} x", "line 1, column 10"},
           {"{'a': 1}", "line 1, column 2"},
           {"[1, // no\n2]", "line 1, column 5"},
           {"[01]", "line 1, column 3"},
           {"[\"a\nb\"]", "not JSON"},
           {"[1e999]", "number 1e999 is larger than a double can hold"},
           {"[\"\xFF\"]", "invalid UTF-8"},
           {"[\"\xC3\"]", "invalid UTF-8"},
           {"\xEF\xBB\xBF[]", "byte order mark"},
       }) {
    CAPTURE(c.text);
    CAPTURE(refusal(c.text));
    CHECK(refusal(c.text).find(c.says) != std::string::npos);
  }
}

TEST_CASE("strict json: CR LF is white space") {
  CHECK_EQ(refusal("{\r\n\"a\": 1\r\n}\r\n"), "");
}

TEST_CASE(
    "strict json: duplicate keys are refused at every depth, all of them; siblings may repeat") {
  CHECK_EQ(refusal(R"([{"a": 1}, {"a": 1}])"), "");
  const std::string found =
      refusal(R"({"l": [{"f": 1}, {"f": 1, "f": 2}], "x": {"y/z": 0, "y/z": 0}})");
  CHECK(found.find("f.json: /l/1/f: duplicate key \"f\"") != std::string::npos);
  CHECK(found.find("f.json: /x/y~1z: duplicate key") != std::string::npos);
}

TEST_CASE("strict json: nesting stops at 64") {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  CHECK_EQ(refusal(nested(64)), "");
  CHECK(refusal(nested(65)).find("nested more than 64 deep") != std::string::npos);
  CHECK(refusal(std::string(1000000, '[')).find("nested more than 64 deep") != std::string::npos);
}

TEST_CASE("strict json: numbers are kept as written") {
  const Result<JsonValue> value =
      parse_json("[12.50, 9223372036854775807, 9223372036854775808, -3]", "");
  REQUIRE(value.ok());
  const auto& items = std::get<JsonValue::Array>(value.value().value);
  CHECK_EQ(items[0].shown(), "12.50");
  CHECK_EQ(std::get<std::int64_t>(items[1].value), 9223372036854775807);
  CHECK_EQ(items[2].shown(), "9223372036854775808");
  CHECK_EQ(std::get<std::int64_t>(items[3].value), -3);
}

TEST_CASE("strict json: a reader tells all faults of an object at once") {
  const Result<JsonValue> value =
      parse_json(R"({"a": true, "b": -1, "c": [], "d": 0, "e": null, "z": 1})", "");
  REQUIRE(value.ok());
  JsonFaults faults("f.json");
  JsonObject object(value.value(), "/at", faults);
  CHECK_FALSE(object.micros("a", Need::Required).has_value());
  CHECK_FALSE(object.bytes("b", Need::Required).has_value());
  CHECK_FALSE(object.string("c", Need::Required).has_value());
  CHECK_FALSE(object.positive("d", Need::Required).has_value());
  CHECK_FALSE(object.boolean("e", Need::Required).has_value());
  CHECK_FALSE(object.integer("missing", 0, 9, Need::Required).has_value());
  CHECK_FALSE(object.integer("absent", 0, 9, Need::Optional).has_value());
  object.refuse_unknown();
  const Error error = std::move(faults).error();
  std::vector<std::string> lines;
  for (const Diagnostic& d : error.diagnostics) {
    lines.push_back(d.code + " " + d.where);
  }
  CHECK_EQ(lines, std::vector<std::string>{"json-type f.json: /at/a", "json-range f.json: /at/b",
                                           "json-type f.json: /at/c", "json-range f.json: /at/d",
                                           "json-type f.json: /at/e",
                                           "json-missing-key f.json: /at/missing",
                                           "json-unknown-key f.json: /at/z"});
}

}  // namespace xpipe::ir
