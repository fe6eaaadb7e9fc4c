#include "ir/decimal.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

namespace xpipe::ir {

TEST_CASE("decimal: numbers become whole ones without floating point, rounded half up") {
  struct Case {
    std::string_view text;
    int places;
    std::int64_t value;
    bool exact;
  };

  for (const Case& c : std::vector<Case>{
           {"0", 3, 0, true},
           {"12.5", 3, 12500, true},
           {"12.345", 3, 12345, true},
           {"12.3455", 3, 12346, false},
           {"12.3454999", 3, 12345, false},
           {"0.0005", 3, 1, false},
           {"0.0004", 3, 0, false},
           {"0.00005", 3, 0, false},
           {"999.9999", 3, 1000000, false},
           {"0.1", 3, 100, true},  // no double is 0.1
           {"635.902", 6, 635902000, true},
           {"1e3", 0, 1000, true},
           {"1.5E-3", 3, 2, false},
           {"1.5e+2", 0, 150, true},
           {"0e999", 3, 0, true},
           {"-1.5", 3, -1500, true},
           {"154140672.000", 0, 154140672, true},
           {"9223372036854775.807", 3, 9223372036854775807, true},
       }) {
    CAPTURE(c.text);
    const auto found = scaled_decimal(c.text, c.places);
    REQUIRE(found.has_value());
    CHECK_EQ(found->value, c.value);
    CHECK_EQ(found->exact, c.exact);
  }
}

TEST_CASE("decimal: what is no number, or too large, is nothing") {
  for (const std::string_view text :
       {"", "-", ".5", "5.", "1.2.3", "1e", "1x", " 1", "0x10", "NaN", "1e99", "1e99999999999",
        "9223372036854775.808", "9223372036854775.8075"}) {
    CAPTURE(text);
    CHECK_FALSE(scaled_decimal(text, 3).has_value());
  }
}

TEST_CASE("decimal: microseconds written are the nanoseconds read") {
  CHECK_EQ(micros_text(12500), "12.5");
  CHECK_EQ(micros_text(1), "0.001");
  CHECK_EQ(micros_text(-1), "-0.001");
  CHECK_EQ(micros_text(-1500), "-1.5");
  CHECK_EQ(micros_text(7000), "7");
  CHECK(rc::check([](std::int64_t time) {
    RC_PRE(time != INT64_MIN);
    const auto back = scaled_decimal(micros_text(time), 3);
    RC_ASSERT(back.has_value());
    RC_ASSERT(back->value == time);
    RC_ASSERT(back->exact);
  }));
}

TEST_CASE("decimal: a number's text is short and reads back as the same number") {
  CHECK_EQ(number_text(8.0), "8");
  CHECK_EQ(number_text(0.1), "0.1");
  CHECK_EQ(number_text(-2.5), "-2.5");
  CHECK_EQ(number_text(1e30), "1e+30");
  CHECK_EQ(number_text(std::numeric_limits<double>::infinity()), "inf");
  CHECK_EQ(number_text(std::numeric_limits<double>::quiet_NaN()), "nan");
  CHECK(rc::check([](double number) {
    RC_PRE(std::isfinite(number));
    RC_ASSERT(std::strtod(number_text(number).c_str(), nullptr) == number);
  }));
}

}  // namespace xpipe::ir
