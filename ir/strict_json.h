// Strict JSON: a value tree that keeps numbers as they are written, and a reader that collects
// every fault with its place. Files of ours (schedule, profile, cluster, trace) are read through
// it.
//
// Refused: syntax errors and NaN or Infinity (line and column), invalid UTF-8, a byte order mark,
// numbers that no double holds, duplicate keys, nesting beyond kMaxJsonDepth, and whatever a reader
// does not ask for: unknown keys, other types, numbers out of range. CR LF is white space. Linear
// in the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/ids.h"
#include "ir/status.h"

namespace xpipe::ir {

inline constexpr int kMaxJsonDepth = 64;

/// A number as it is written, when it is not a whole number of 64 bits: "12.50", "1e3".
struct JsonNumber {
  std::string text;
};

struct JsonMember;

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;  ///< in the order of the file

  std::variant<std::nullptr_t, bool, std::int64_t, JsonNumber, std::string, Array, Object> value;

  /// The content, if it is of that type; nullptr otherwise.
  template <typename T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&value);
  }

  /// Of an object, the member of that name; nullptr without one.
  [[nodiscard]] const JsonValue* find(std::string_view key) const;

  /// `null`, `true`, `the string "a"`, `12.50`, `an array`: what a message says was found.
  [[nodiscard]] std::string shown() const;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

/// Errors: BadInput, with `file` in front of every place.
[[nodiscard]] Result<JsonValue> parse_json(std::string_view text, std::string_view file);

using OnJsonItem = std::function<void(std::size_t index, const JsonValue& item)>;

/// The same for files with one long array, which then never stands in memory as a tree: the items
/// of the outermost object's member `array`, or of a document that is an array itself, are given to
/// `on_item` in the order of the file, and the array is empty in what is returned. `on_item` has
/// seen the items before the place of an error.
[[nodiscard]] Result<JsonValue> parse_json(std::string_view text,
                                           std::string_view file,
                                           std::string_view array,
                                           const OnJsonItem& on_item);

/// The faults found in one file.
class JsonFaults {
 public:
  explicit JsonFaults(std::string_view file) : file_(file) {}

  /// `path` is a JSON pointer, "/layers/2/forward_us"; "" is the whole document. Both become one
  /// line of UTF-8 (ir/utf8.h).
  void add(std::string code, std::string_view path, std::string_view message);

  [[nodiscard]] bool empty() const { return diagnostics_.empty(); }

  /// Requires: !empty().
  [[nodiscard]] Error error() &&;

  /// All so far, in the order they were added.
  [[nodiscard]] std::vector<Diagnostic> take() &&;

 private:
  std::string file_;
  std::vector<Diagnostic> diagnostics_;
};

enum class Need : std::uint8_t { Required, Optional };

/// Reads one object key by key. Each getter returns nothing when the key is absent or wrong; what
/// is wrong, or required and absent, becomes a fault. Call refuse_unknown() when all has been
/// asked.
class JsonObject {
 public:
  /// `value` and `faults` must outlive the reader. Not being an object is a fault.
  JsonObject(const JsonValue& value, std::string path, JsonFaults& faults);

  /// The value itself, whatever it is.
  const JsonValue* get(std::string_view key, Need need);
  const JsonValue::Array* array(std::string_view key, Need need);
  const JsonValue::Object* object(std::string_view key, Need need);
  std::optional<std::string> string(std::string_view key, Need need);
  std::optional<bool> boolean(std::string_view key, Need need);
  std::optional<std::int64_t> integer(std::string_view key,
                                      std::int64_t least,
                                      std::int64_t most,
                                      Need need);
  /// Bytes: a whole number, at least 0.
  std::optional<Bytes> bytes(std::string_view key, Need need);
  /// A finite number greater than 0.
  std::optional<double> positive(std::string_view key, Need need);
  /// Microseconds, at least 0, as nanoseconds; more than three decimals are rounded half up.
  std::optional<Nanos> micros(std::string_view key, Need need);

  /// "format": `name` and "version": `version`.
  void expect_format(std::string_view name, std::int64_t version);

  void refuse_unknown();

  [[nodiscard]] std::string path_of(std::string_view key) const;

  void fault(std::string code, std::string_view key, std::string_view message);

 private:
  void wrong_type(std::string_view key, const JsonValue& found, std::string_view expected);

  const JsonValue::Object* members_ = nullptr;  ///< nullptr: was no object
  std::string path_;
  JsonFaults& faults_;
  std::vector<std::string> asked_;
};

/// `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string json_quoted(std::string_view text);

}  // namespace xpipe::ir
