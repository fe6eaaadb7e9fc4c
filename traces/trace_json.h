// What the readers of Chrome traces share beyond ir/strict_json.h: events come one by one, so that
// a file of a million never stands in memory as a tree, and times are told from their digits:
// whether 0.1 µs is a whole number of nanoseconds cannot be told from a double.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/ids.h"
#include "ir/status.h"
#include "ir/strict_json.h"

namespace xpipe::traces {

/// The whole number that `value` is written as (no point, no exponent); nothing otherwise, or when
/// 64 bits do not hold it.
[[nodiscard]] std::optional<std::int64_t> whole_number(const ir::JsonValue& value);

/// A time written in µs, as ns: a number in fixed notation that is a whole number of ns.
[[nodiscard]] std::optional<ir::Nanos> nanos_from_us(const ir::JsonValue& value);

/// A number as text, as good as it was written: "0.250", "7"; nothing when it is no number.
[[nodiscard]] std::optional<std::string> digits_of(const ir::JsonValue& value);

/// Calls `on_event` for each event in the order of the file; a trace is an object with an array
/// `traceEvents`, or that array alone. Returns what stands beside them, the array left empty.
/// Errors: as ir::parse_json().
[[nodiscard]] ir::Result<ir::JsonValue> read_trace_json(std::string_view text,
                                                        std::string_view file,
                                                        const ir::OnJsonItem& on_event);

}  // namespace xpipe::traces
