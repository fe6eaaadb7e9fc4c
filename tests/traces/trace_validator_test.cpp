// One broken trace per rule of traces/trace_validator.h, each a good trace with one edit.
#include "traces/trace_validator.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/traces/trace_helpers.h"
#include "traces/chrome_trace.h"

namespace xpipe::tests {
namespace {

using traces::validate_trace;

/// Two threads, a nested slice, an arrow, a counter: small enough to be read whole.
const std::string kGood = R"({"schemaVersion": 1,
  "distributedInfo": {
    "rank": 0
  },
  "traceEvents": [
    {"ph":"M","pid":1,"tid":1,"name":"process_name","args":{"name":"device 0"}},
    {"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"compute"}},
    {"ph":"M","pid":1,"tid":2,"name":"thread_name","args":{"name":"send"}},
    {"ph":"X","pid":1,"tid":1,"ts":0.000,"dur":2.000,"name":"outer","cat":"c"},
    {"ph":"X","pid":1,"tid":1,"ts":0.500,"dur":1.000,"name":"inner","cat":"c"},
    {"ph":"X","pid":1,"tid":2,"ts":2.000,"dur":1.500,"name":"send","cat":"c"},
    {"ph":"s","pid":1,"tid":1,"ts":1.999,"id":1,"name":"n","cat":"c"},
    {"ph":"f","pid":1,"tid":2,"ts":2.000,"id":1,"name":"n","cat":"c","bp":"e"},
    {"ph":"C","pid":1,"tid":1,"ts":0.000,"name":"memory","args":{"bytes":0}}
  ]
}
)";

struct Broken {
  std::string code;
  std::string where;  ///< where the diagnostic points
  std::string from;
  std::string to;
  std::string says;  ///< part of the message
};

const std::vector<Broken> kBroken = {
    {"trace-1", "line 16", "  ]\n}\n", "  ]\n", "not JSON"},
    {"trace-1", "line 14, column", "\"args\":{\"bytes\":0}", "\"args\":{\"bytes\":NaN}",
     "not JSON"},
    {"trace-1", "line 9, column", "\"outer\"", "\"out\ner\"", "not JSON"},
    {"trace-1", "line 9, column", "\"outer\"", "\"\xFF\"", "invalid UTF-8"},
    {"trace-1", "line 14, column", "\"bytes\":0", "\"bytes\":1e999", "1e999 is larger"},
    {"trace-1", "/traceEvents/3/dur", "\"dur\":2.000", "\"dur\":2.000,\"dur\":2.000",
     "duplicate key"},
    {"trace-2", "/traceEvents/3/ph", "\"ph\":\"X\",", "", "without `ph`"},
    {"trace-2", "/traceEvents/3/ph", "\"ph\":\"X\",", "\"ph\":\"Q\",", "\"Q\""},
    {"trace-2", "/traceEvents/8", "\"ts\":0.000,\"name\":\"memory\"", "\"name\":\"memory\"",
     "no `ts`"},
    {"trace-3", "/traceEvents/8/ts", "\"ts\":0.000,\"name\":\"memory\"",
     "\"ts\":0.0005,\"name\":\"memory\"", "0.0005"},
    {"trace-3", "/traceEvents/4/dur", "\"dur\":1.000", "\"dur\":1e0", "fixed notation"},
    {"trace-3", "/traceEvents/4/dur", "\"dur\":1.000", "\"dur\":-1.000", "-1.000"},
    {"trace-3", "/traceEvents/4/dur", "\"dur\":1.000", "\"dur\":\"1\"", "\"1\""},
    {"trace-3", "/traceEvents/4", "\"dur\":1.000,", "", "no `dur`"},
    {"trace-3", "/traceEvents/4/dur", "\"dur\":1.000", "\"dur\":9223372036854775.807", "2^63"},
    {"trace-4", "/traceEvents/8/pid", "\"ph\":\"C\",\"pid\":1", "\"ph\":\"C\",\"pid\":0",
     "found 0"},
    {"trace-4", "/traceEvents/4/tid", "\"tid\":1,\"ts\":0.500", "\"ts\":0.500", "missing"},
    {"trace-4", "/traceEvents/4/tid", "\"tid\":1,\"ts\":0.500", "\"tid\":4294967296,\"ts\":0.500",
     "4294967296"},
    {"trace-4", "/traceEvents/4/tid", "\"tid\":1,\"ts\":0.500", "\"tid\":\"1\",\"ts\":0.500",
     "\"1\""},
    {"trace-5", "/traceEvents/4", "\"dur\":1.000", "\"dur\":1.501", "overlaps /traceEvents/3"},
    {"trace-5", "/traceEvents/3", "\"ts\":0.500,\"dur\":1.000", "\"ts\":0.000,\"dur\":3.000",
     "must be written first"},
    {"trace-5", "/traceEvents/8", "\"ph\":\"C\"", "\"ph\":\"B\"", "has no E"},
    {"trace-5", "/traceEvents/8", "\"ph\":\"C\"", "\"ph\":\"E\"", "ends no B"},
    {"trace-6", "/traceEvents/5", "\"thread_name\",\"args\":{\"name\":\"send\"}",
     "\"thread_sort_index\",\"args\":{\"sort_index\":1}", "pid 1, tid 2 has no `thread_name`"},
    {"trace-6", "/traceEvents/3", "\"process_name\"", "\"process_labels\"", "`process_name`"},
    {"trace-7", "/traceEvents/6", "\"ph\":\"f\"", "\"ph\":\"s\"", "2 s and 0 f"},
    {"trace-7", "/traceEvents/6", "\"ts\":1.999", "\"ts\":2.000", "no slice"},
    {"trace-7", "/traceEvents/7", "\"ph\":\"f\",\"pid\":1,\"tid\":2,\"ts\":2.000",
     "\"ph\":\"f\",\"pid\":1,\"tid\":1,\"ts\":1.000", "before it starts"},
    {"trace-7", "/traceEvents/7/id", "\"ts\":2.000,\"id\":1", "\"ts\":2.000,\"id\":\"1\"",
     "hexadecimal"},
    {"trace-7", "/traceEvents/6/id", "\"ts\":1.999,\"id\":1,", "\"ts\":1.999,", "missing"},
    {"trace-8", "/traceEvents/8/args/bytes", "\"bytes\":0", "\"bytes\":\"0\"", "a number"},
    {"trace-8", "/traceEvents/8/args/bytes", "\"bytes\":0", "\"bytes\":{\"x\":0}", "an object"},
    {"trace-8", "/traceEvents/8/args/bytes", "\"bytes\":0", "\"bytes\":0.1234567890123456",
     "15 fraction digits"},
    {"trace-8", "/traceEvents/8/args/bytes", "\"bytes\":0", "\"bytes\":1e-16",
     "15 fraction digits"},
    {"trace-8", "/traceEvents/8/args", "{\"bytes\":0}", "{}", "not empty"},
    {"trace-9", "line 1, column 1", "{\"schema", "{ \"schema", "first bytes"},
    {"trace-9", "/", "\"traceEvents\"", "\"events\"", "`traceEvents`"},
    {"trace-10", "/distributedInfo/rank", "\"rank\": 0", "\"rank\":0", "HTA"},
    {"trace-10", "/distributedInfo/rank", "\"schemaVersion\": 1", "\"other\": {\"rank\": 3}", "3"},
    {"trace-10", "/distributedInfo/rank", "\"rank\": 0", "\"world_size\": 1", "the rank"},
};

TEST_CASE("trace validator: a good trace has no faults") {
  CHECK(joined(validate_trace(kGood)) == "");
}

TEST_CASE("trace validator: one broken trace per rule is refused for that rule, at its place") {
  for (const Broken& broken : kBroken) {
    CAPTURE(broken.from);
    CAPTURE(broken.to);
    const std::string text = edited(kGood, broken.from, broken.to);
    const std::vector<ir::Diagnostic> faults = validate_trace(text);
    INFO("found: " << joined(faults));
    CHECK(std::any_of(faults.begin(), faults.end(), [&broken](const ir::Diagnostic& fault) {
      return fault.code == broken.code && fault.where.find(broken.where) == 0 &&
             fault.message.find(broken.says) != std::string::npos;
    }));
  }
}

TEST_CASE("trace validator: each of the ten rules has a broken trace above") {
  for (int rule = 1; rule <= 10; ++rule) {
    const std::string code = "trace-" + std::to_string(rule);
    CHECK(std::any_of(kBroken.begin(), kBroken.end(),
                      [&code](const Broken& broken) { return broken.code == code; }));
  }
}

TEST_CASE("trace validator: an arrow written before its slice is refused") {
  const std::string slice =
      "    "
      "{\"ph\":\"X\",\"pid\":1,\"tid\":2,\"ts\":2.000,\"dur\":1.500,\"name\":\"send\",\"cat\":"
      "\"c\"},\n";
  std::string text = edited(kGood, slice, "");
  text = edited(text, "    {\"ph\":\"C\"", slice + "    {\"ph\":\"C\"");
  const std::vector<ir::Diagnostic> faults = validate_trace(text);
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].code == "trace-7");
  CHECK(faults[0].where == "/traceEvents/6");
}

TEST_CASE("trace validator: all faults at once, with the file's name") {
  std::string text = edited(kGood, "\"dur\":1.000", "\"dur\":1.501");
  text = edited(text, "\"bytes\":0", "\"bytes\":true");
  text = edited(text, "\"rank\": 0", "\"rank\":0");
  const std::vector<ir::Diagnostic> faults = validate_trace(text, "run.json");
  std::vector<std::string> codes;
  for (const ir::Diagnostic& fault : faults) {
    codes.push_back(fault.code);
    CHECK(fault.where.starts_with("run.json: /"));
  }
  CHECK(codes == std::vector<std::string>{"trace-8", "trace-5", "trace-10"});
}

TEST_CASE("trace validator: what viewers read well is accepted") {
  SUBCASE("neighbours that touch, and moments of no time between them") {
    CHECK(validate_trace(edited(kGood, "\"ts\":0.500,\"dur\":1.000", "\"ts\":2.000,\"dur\":0.000"))
              .empty());
    CHECK(validate_trace(edited(kGood, "\"ts\":0.500,\"dur\":1.000", "\"ts\":0.000,\"dur\":0"))
              .empty());
  }
  SUBCASE("B and E in place of X") {
    const std::string pair =
        R"({"ph":"B","pid":1,"tid":1,"ts":0.500,"name":"inner"},{"ph":"E","pid":1,"tid":1,"ts":1.5})";
    CHECK(
        validate_trace(
            edited(kGood,
                   R"({"ph":"X","pid":1,"tid":1,"ts":0.500,"dur":1.000,"name":"inner","cat":"c"})",
                   pair))
            .empty());
  }
  SUBCASE("whole microseconds and trailing zeros") {
    CHECK(validate_trace(edited(kGood, "\"dur\":1.000", "\"dur\":1")).empty());
    CHECK(validate_trace(edited(kGood, "\"dur\":1.000", "\"dur\":1.00000000")).empty());
  }
}

TEST_CASE("trace validator: a bare array is checked, and told from the shape we ask for") {
  const std::vector<ir::Diagnostic> faults =
      validate_trace(R"([{"ph":"X","pid":1,"tid":1,"ts":1,"dur":-1,"name":"a"}])");
  std::vector<std::string> codes;
  for (const ir::Diagnostic& fault : faults) {
    codes.push_back(fault.code);
  }
  CHECK(codes == std::vector<std::string>{"trace-9", "trace-3", "trace-6", "trace-6", "trace-10"});
}

TEST_CASE("trace validator: absurd depth, no text and no object are refused, not crashed on") {
  CHECK(validate_trace(std::string(100'000, '[')).back().code == "trace-1");
  CHECK(validate_trace("").back().code == "trace-1");
  CHECK(validate_trace("5").front().code == "trace-9");
  CHECK(validate_trace("{\"traceEvents\": 5}").front().code == "trace-9");
  CHECK(validate_trace("{\"traceEvents\": [5, null, []]}").front().code == "trace-2");
}

}  // namespace
}  // namespace xpipe::tests
