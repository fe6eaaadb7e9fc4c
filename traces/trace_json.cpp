#include "traces/trace_json.h"

#include <algorithm>
#include <charconv>

#include "ir/decimal.h"

namespace xpipe::traces {

std::optional<std::int64_t> whole_number(const ir::JsonValue& value) {
  const auto* number = value.as<std::int64_t>();
  return number == nullptr ? std::nullopt : std::optional(*number);
}

std::optional<std::string> digits_of(const ir::JsonValue& value) {
  if (const auto number = whole_number(value)) {
    return std::to_string(*number);
  }
  const auto* decimal = value.as<ir::JsonNumber>();
  return decimal == nullptr ? std::nullopt : std::optional(decimal->text);
}

std::optional<ir::Nanos> nanos_from_us(const ir::JsonValue& value) {
  const std::optional<std::string> digits = digits_of(value);
  if (!digits) {
    return std::nullopt;
  }
  const std::size_t point = digits->find('.');
  const std::string_view fraction =
      point == std::string::npos ? std::string_view() : std::string_view(*digits).substr(point + 1);
  if (!std::all_of(fraction.begin(), fraction.end(), ir::is_digit)) {
    return std::nullopt;  // an exponent
  }
  if (fraction.size() > 3 && fraction.find_first_not_of('0', 3) != std::string_view::npos) {
    return std::nullopt;
  }
  std::string nanos = digits->substr(0, point);
  for (std::size_t i = 0; i < 3; ++i) {
    nanos += i < fraction.size() ? fraction[i] : '0';
  }
  ir::Nanos time = 0;
  const char* end = nanos.data() + nanos.size();
  const auto parsed = std::from_chars(nanos.data(), end, time);
  return parsed.ec == std::errc{} && parsed.ptr == end ? std::optional(time) : std::nullopt;
}

ir::Result<ir::JsonValue> read_trace_json(std::string_view text,
                                          std::string_view file,
                                          const ir::OnJsonItem& on_event) {
  return ir::parse_json(text, file, "traceEvents", on_event);
}

}  // namespace xpipe::traces
