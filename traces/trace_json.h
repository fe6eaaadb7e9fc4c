// Reads the JSON of a Chrome trace event by event, so that a file of a million events never stands
// in memory as a tree. Numbers keep the text they were written with: whether 0.1 µs is a whole
// number of nanoseconds can only be told from its digits, not from a double.
//
//   read_trace_json(text, file, [](std::size_t index, const JsonValue& event) { ... });
//
// Strict JSON (RFC 8259), and no key twice in one object. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/ids.h"
#include "ir/status.h"

namespace xpipe::traces {

struct JsonValue {
  enum class Kind : std::uint8_t { Null, Bool, Number, String, Array, Object };

  Kind kind = Kind::Null;
  bool boolean = false;
  std::string text{};              ///< a String's content, or a Number's digits as written
  std::vector<JsonValue> items{};  ///< of an Array
  std::vector<std::pair<std::string, JsonValue>> members{};  ///< of an Object, in the file's order

  /// The member of that name; nullptr without one. Points into this value.
  [[nodiscard]] const JsonValue* find(std::string_view name) const;

  [[nodiscard]] bool is(Kind wanted) const { return kind == wanted; }
};

/// "file: where", or `where` alone when the source has no name.
[[nodiscard]] std::string place(std::string_view file, std::string_view where);

/// "a number", "an object", ...: for messages.
[[nodiscard]] std::string_view kind_text(JsonValue::Kind kind);

/// What was found, short enough for a message: `"abc"`, `3.5`, "an object".
[[nodiscard]] std::string shown(const JsonValue& value);

/// The whole number that `value` is written as (no point, no exponent); nothing otherwise, or when
/// it does not fit.
[[nodiscard]] std::optional<std::int64_t> whole_number(const JsonValue& value);

/// A time written in µs, as ns: a number in fixed notation that is a whole number of ns.
[[nodiscard]] std::optional<ir::Nanos> nanos_from_us(const JsonValue& value);

/// Everything but the events.
struct TraceDocument {
  bool bare_array = false;  ///< the file is [event, ...] and no object
  bool has_events = false;  ///< there is an array of events
  std::size_t events = 0;
  JsonValue header;  ///< an Object: the members beside `traceEvents`
};

using OnEvent = std::function<void(std::size_t index, const JsonValue& event)>;

/// Calls `on_event` for each event in the order of the file. Deeper nesting than kMaxDepth is
/// refused. Errors: BadInput; syntax ends the reading with the line and column, doubled keys are
/// all found, with their JSON path. `on_event` has seen the events before the place of an error.
[[nodiscard]] ir::Result<TraceDocument> read_trace_json(std::string_view text,
                                                        std::string_view file,
                                                        const OnEvent& on_event);

inline constexpr std::size_t kMaxDepth = 32;

}  // namespace xpipe::traces
