#include "traces/trace_json.h"

#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace xpipe::tests {
namespace {

using ir::JsonValue;

JsonValue number(const std::string& digits) {
  return ir::parse_json(digits, "").value();
}

TEST_CASE("trace json: a time in us is read digit by digit") {
  struct Row {
    const char* us;
    std::optional<ir::Nanos> ns;
  };

  const std::vector<Row> rows = {
      {"0", 0},
      {"0.001", 1},
      {"0.1", 100},
      {"12.34", 12'340},
      {"-1.5", -1'500},
      {"1.2340000", 1'234},
      {"9223372036854775.807", 9'223'372'036'854'775'807},
      {"9223372036854775.808", std::nullopt},
      {"1.2345", std::nullopt},
      {"1e3", std::nullopt},
      {"1.5e3", std::nullopt},
  };
  for (const Row& row : rows) {
    CAPTURE(row.us);
    CHECK(traces::nanos_from_us(number(row.us)) == row.ns);
  }
}

TEST_CASE("trace json: events are handed on one by one, the rest is kept") {
  std::vector<std::string> events;
  const auto document = traces::read_trace_json(
      R"({"a": {"traceEvents": [7]}, "traceEvents": [1, {"x": [2, 3]}, "s"], "b": [null, true]})",
      "", [&events](std::size_t index, const JsonValue& event) {
        CHECK(index == events.size());
        events.push_back(event.shown());
      });
  REQUIRE(document.ok());
  CHECK(events == std::vector<std::string>{"1", "an object", "the string \"s\""});
  const JsonValue& header = document.value();
  CHECK(header.as<JsonValue::Object>()->size() == 3);
  CHECK(header.find("traceEvents")->as<JsonValue::Array>()->empty());
  CHECK(header.find("b")->as<JsonValue::Array>()->size() == 2);
  CHECK(header.find("a")->find("traceEvents")->as<JsonValue::Array>()->size() == 1);
}

TEST_CASE("trace json: every doubled key is named by its path") {
  const auto document =
      traces::read_trace_json(R"({"m": {"x": 1, "x": 2}, "traceEvents": [{}, {"y": 1, "y": 1}],
                                  "traceEvents": []})",
                              "f.json", [](std::size_t, const JsonValue&) {});
  REQUIRE_FALSE(document.ok());
  std::vector<std::string> places;
  for (const ir::Diagnostic& fault : document.error().diagnostics) {
    places.push_back(fault.where);
  }
  CHECK(places == std::vector<std::string>{"f.json: /m/x", "f.json: /traceEvents/1/y",
                                           "f.json: /traceEvents"});
}

TEST_CASE("trace json: a syntax error is given with line and column") {
  const auto document = traces::read_trace_json("{\"traceEvents\": [\n  {\"a\" 1}]}", "f.json",
                                                [](std::size_t, const JsonValue&) {});
  REQUIRE_FALSE(document.ok());
  CHECK(document.error().diagnostics.front().where == "f.json: line 2, column 8");
}

}  // namespace
}  // namespace xpipe::tests
