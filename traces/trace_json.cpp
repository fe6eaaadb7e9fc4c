#include "traces/trace_json.h"

#include <algorithm>
#include <charconv>
#include <exception>

#include <nlohmann/json.hpp>

namespace xpipe::traces {

namespace {

using Json = nlohmann::json;
using Kind = JsonValue::Kind;

constexpr std::size_t kShownBytes = 40;  ///< longer strings are cut in messages

/// Builds one JsonValue at a time; the events of the array it recognizes are handed on and dropped.
class Builder {
 public:
  Builder(std::string_view text, std::string_view file, const OnEvent& on_event)
      : text_(text), file_(file), on_event_(on_event) {}

  // The callbacks of nlohmann::json_sax; false ends the reading.
  bool null() { return add({}); }

  bool boolean(bool value) { return add({.kind = Kind::Bool, .boolean = value}); }

  bool number_integer(Json::number_integer_t value) { return number(std::to_string(value)); }

  bool number_unsigned(Json::number_unsigned_t value) { return number(std::to_string(value)); }

  bool number_float(Json::number_float_t /*value*/, const std::string& digits) {
    return number(digits);
  }

  bool string(std::string& value) { return add({.kind = Kind::String, .text = std::move(value)}); }

  bool binary(Json::binary_t& /*value*/) { return false; }

  bool start_object(std::size_t /*size*/) { return open(Kind::Object); }

  bool end_object() { return close(); }

  bool start_array(std::size_t /*size*/) { return open(Kind::Array); }

  bool end_array() { return close(); }

  bool key(std::string& name) {
    const JsonValue& object = open_.back();
    if (object.find(name) != nullptr || (open_.size() == 1 && name == "traceEvents" && seen_)) {
      fault("json-duplicate-key", path() + "/" + name, "the key stands twice in one object");
    }
    keys_.back() = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/, const Json::exception& e) {
    const std::string_view before = text_.substr(0, position == 0 ? 0 : position - 1);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
    // "[json.exception...] parse error at line 2, column 8: what is wrong": the place is ours.
    std::string message = e.what();
    for (const char* head : {"] ", ", column "}) {
      if (const std::size_t at = message.find(head); at != std::string::npos) {
        message.erase(0, at + std::string_view(head).size());
      }
    }
    if (const std::size_t at = message.find(": ");
        at != std::string::npos && message.find_first_not_of("0123456789") == at) {
      message.erase(0, at + 2);
    }
    fault("json-syntax",
          "line " + std::to_string(line) + ", column " +
              std::to_string(before.size() - line_begin + 1),
          "this is not JSON: " + message);
    return false;
  }

  ir::Result<TraceDocument> finish(bool complete) {
    if (!complete && faults_.empty()) {
      fault("json-syntax", "line 1, column 1", "this is not JSON");
    }
    if (!faults_.empty()) {
      return ir::Error{ir::ErrorKind::BadInput, std::move(faults_)};
    }
    return std::move(document_);
  }

 private:
  [[nodiscard]] bool at_events_array() const {
    return streaming_ && open_.size() == (document_.bare_array ? 1U : 2U);
  }

  bool open(Kind kind) {
    if (open_.size() == kMaxDepth) {
      fault("json-depth", path(),
            "nested deeper than " + std::to_string(kMaxDepth) + " levels; traces need 4");
      return false;
    }
    if (kind == Kind::Array && !streaming_ &&
        (open_.empty() ||
         (open_.size() == 1 && open_[0].is(Kind::Object) && !seen_ && keys_[0] == "traceEvents"))) {
      document_.bare_array = open_.empty();
      document_.has_events = true;
      streaming_ = true;
      seen_ = true;
    }
    open_.push_back({.kind = kind});
    keys_.emplace_back();
    return true;
  }

  bool close() {
    if (at_events_array()) {
      streaming_ = false;
      open_.pop_back();
      keys_.pop_back();
      return true;
    }
    JsonValue done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return add(std::move(done));
  }

  bool number(std::string digits) { return add({.kind = Kind::Number, .text = std::move(digits)}); }

  bool add(JsonValue value) {
    if (at_events_array()) {
      on_event_(document_.events++, value);
    } else if (open_.empty()) {
      document_.header = std::move(value);
    } else if (open_.back().is(Kind::Array)) {
      open_.back().items.push_back(std::move(value));
    } else {
      open_.back().members.emplace_back(std::move(keys_.back()), std::move(value));
    }
    return true;
  }

  /// The JSON path of the value that is open.
  [[nodiscard]] std::string path() const {
    std::string path;
    for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
      const bool event = streaming_ && i == (document_.bare_array ? 0U : 1U);
      path += '/';
      path += event                       ? std::to_string(document_.events)
              : open_[i].is(Kind::Object) ? keys_[i]
                                          : std::to_string(open_[i].items.size());
    }
    return path;
  }

  void fault(std::string code, const std::string& where, std::string message) {
    faults_.push_back({std::move(code), place(file_, where), std::move(message)});
  }

  std::string_view text_;
  std::string_view file_;
  const OnEvent& on_event_;
  TraceDocument document_;
  std::vector<JsonValue> open_;    ///< the arrays and objects that are not closed yet
  std::vector<std::string> keys_;  ///< for each of them, the key that was read last
  bool streaming_ = false;         ///< inside the array of events
  bool seen_ = false;              ///< the array of events has begun
  std::vector<ir::Diagnostic> faults_;
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  const auto it = std::find_if(members.begin(), members.end(),
                               [name](const auto& member) { return member.first == name; });
  return it == members.end() ? nullptr : &it->second;
}

std::string place(std::string_view file, std::string_view where) {
  return (file.empty() ? "" : std::string(file) + ": ") + std::string(where);
}

std::string_view kind_text(Kind kind) {
  switch (kind) {
    case Kind::Null:
      return "null";
    case Kind::Bool:
      return "a boolean";
    case Kind::Number:
      return "a number";
    case Kind::String:
      return "a string";
    case Kind::Array:
      return "an array";
    case Kind::Object:
      return "an object";
  }
  return "unknown";
}

std::string shown(const JsonValue& value) {
  switch (value.kind) {
    case Kind::Bool:
      return value.boolean ? "true" : "false";
    case Kind::Number:
      return value.text;
    case Kind::String: {
      const bool cut = value.text.size() > kShownBytes;
      return Json(value.text.substr(0, kShownBytes))
                 .dump(-1, ' ', false, Json::error_handler_t::replace) +
             (cut ? "..." : "");
    }
    default:
      return std::string(kind_text(value.kind));
  }
}

std::optional<std::int64_t> whole_number(const JsonValue& value) {
  if (!value.is(Kind::Number)) {
    return std::nullopt;
  }
  std::int64_t number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto parsed = std::from_chars(value.text.data(), end, number);
  if (parsed.ec != std::errc{} || parsed.ptr != end) {
    return std::nullopt;
  }
  return number;
}

std::optional<ir::Nanos> nanos_from_us(const JsonValue& value) {
  if (!value.is(Kind::Number)) {
    return std::nullopt;
  }
  const std::string_view digits = value.text;
  const std::size_t point = digits.find('.');
  const std::string_view fraction =
      point == std::string_view::npos ? std::string_view() : digits.substr(point + 1);
  if (!std::all_of(fraction.begin(), fraction.end(), is_digit)) {
    return std::nullopt;  // an exponent
  }
  if (fraction.size() > 3 && fraction.find_first_not_of('0', 3) != std::string_view::npos) {
    return std::nullopt;
  }
  std::string nanos(digits.substr(0, point));
  for (std::size_t i = 0; i < 3; ++i) {
    nanos += i < fraction.size() ? fraction[i] : '0';
  }
  return whole_number({.kind = Kind::Number, .text = std::move(nanos)});
}

ir::Result<TraceDocument> read_trace_json(std::string_view text,
                                          std::string_view file,
                                          const OnEvent& on_event) {
  Builder builder(text, file, on_event);
  bool complete = false;
  try {
    complete = Json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const Json::exception& e) {
    return ir::make_error(ir::ErrorKind::BadInput, "json-syntax", std::string(file), e.what());
  }
  return builder.finish(complete);
}

}  // namespace xpipe::traces
