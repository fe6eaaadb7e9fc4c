#include "ir/strict_json.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <limits>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "ir/utf8.h"

namespace xpipe::ir {

namespace {

constexpr std::size_t kShownBytes = 80;  ///< longer strings are cut in messages
constexpr std::size_t kFewKeys = 16;     ///< compared one by one; more of them go into a set

std::string pointer_token(std::string_view key) {
  std::string out;
  for (const char c : key) {
    out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return out;
}

/// As Python, C and JavaScript write what JSON has no word for.
bool is_not_finite(std::string word) {
  word.erase(0, word.starts_with("-") || word.starts_with("+") ? 1 : 0);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word == "nan" || word == "inf" || word == "infinity";
}

/// Builds the tree; stops at the first syntax error, goes on after a duplicate key.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// `on_item` may be empty; the text, the names and `on_item` must outlive the builder.
  TreeBuilder(std::string_view text,
              std::string_view file,
              std::string_view array,
              const OnJsonItem& on_item)
      : text_(text), file_(file), array_(array), on_item_(on_item) {}

  bool null() override { return put({nullptr}); }

  bool boolean(bool value) override { return put({value}); }

  bool number_integer(number_integer_t value) override { return put({std::int64_t{value}}); }

  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return put({static_cast<std::int64_t>(value)});
    }
    return put({JsonNumber{std::to_string(value)}});
  }

  bool number_float(number_float_t, const string_t& token) override {
    return put({JsonNumber{token}});
  }

  bool string(string_t& value) override { return put({std::move(value)}); }

  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open({JsonValue::Object()}); }

  bool key(string_t& value) override {
    Open& top = stack_.back();
    if (!is_new(top, value)) {
      fault("json-duplicate-key", path() + "/" + pointer_token(value),
            "duplicate key \"" + value + "\": expected each key once in an object");
    }
    top.key = std::move(value);
    return true;
  }

  bool end_object() override { return close(); }

  bool start_array(std::size_t) override { return open({JsonValue::Array()}); }

  bool end_array() override { return close(); }

  bool parse_error(std::size_t position,
                   const std::string& token,
                   const nlohmann::json::exception& error) override {
    const std::size_t at = std::min(position > 0 ? position - 1 : 0, text_.size());
    const std::string_view before = text_.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
    const std::string place =
        "line " + std::to_string(line) + ", column " + std::to_string(at - line_begin + 1);
    const std::string what = error.what();
    if (error.id == 406) {
      fault("json-range", place, "number " + token + " is larger than a double can hold");
    } else if (what.find("UTF-8") != std::string::npos) {
      fault("utf-8", place, "invalid UTF-8: expected the file in UTF-8");
    } else {
      std::string message = "not JSON: " + what.substr(std::min(what.find(": ") + 2, what.size()));
      const std::string word = word_at(at);
      if (is_not_finite(word)) {
        message = "not JSON: found " + word + ", expected a finite number";
      } else if (at >= text_.size()) {
        message += "; the file ends here: was it cut?";
      } else if (!word.empty()) {
        message += "; found \"" + word + "\"";
      }
      fault("json-syntax", place, message);
    }
    return false;
  }

  /// `place` is a path or a line and column.
  void fault(std::string code, std::string_view place, std::string_view message) {
    faults_.push_back({std::move(code),
                       (file_.empty() ? "" : std::string(file_) + ": ") + one_line(place),
                       one_line(message)});
  }

  Result<JsonValue> finish() && {
    if (!faults_.empty()) {
      return Error{ErrorKind::BadInput, std::move(faults_)};
    }
    return std::move(root_);
  }

 private:
  struct Open {
    JsonValue value;
    std::string key;                       ///< of the member that is being read
    std::unordered_set<std::string> keys;  ///< of all members, when they are many
  };

  static bool is_new(Open& object, const std::string& key) {
    const auto& members = std::get<JsonValue::Object>(object.value.value);
    if (members.size() < kFewKeys) {
      return object.value.find(key) == nullptr;
    }
    if (object.keys.empty()) {
      for (const JsonMember& member : members) {
        object.keys.insert(member.key);
      }
    }
    return object.keys.insert(key).second;
  }

  /// Whether the innermost open array is the one whose items are handed on.
  [[nodiscard]] bool in_long_array() const {
    return streaming_ && stack_.size() == streaming_depth_;
  }

  [[nodiscard]] std::string path() const {
    std::string out;
    for (std::size_t i = 0; i + 1 < stack_.size(); ++i) {
      const Open& level = stack_[i];
      if (const auto* array = level.value.as<JsonValue::Array>()) {
        const bool is_long = streaming_ && i + 1 == streaming_depth_;
        out += "/" + std::to_string(is_long ? items_ : array->size());
      } else {
        out += "/" + pointer_token(level.key);
      }
    }
    return out;
  }

  /// The bare word around a place, such as NaN or -Infinity.
  [[nodiscard]] std::string word_at(std::size_t at) const {
    const auto in_word = [this](std::size_t i) {
      const char c = text_[i];
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '.' || c == '+' || c == '-' || c == '_';
    };
    std::size_t begin = at;
    std::size_t end = at;
    while (begin > 0 && in_word(begin - 1)) {
      --begin;
    }
    while (end < text_.size() && in_word(end)) {
      ++end;
    }
    return std::string(text_.substr(begin, std::min<std::size_t>(end - begin, 40)));
  }

  bool put(JsonValue value) {
    if (in_long_array()) {
      on_item_(items_++, value);
      return true;
    }
    if (stack_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Open& top = stack_.back();
    if (auto* array = std::get_if<JsonValue::Array>(&top.value.value)) {
      array->push_back(std::move(value));
    } else {
      std::get<JsonValue::Object>(top.value.value)
          .push_back({std::move(top.key), std::move(value)});
    }
    return true;
  }

  bool open(JsonValue value) {
    if (stack_.size() == static_cast<std::size_t>(kMaxJsonDepth)) {
      fault("json-depth", path(), "is nested more than " + std::to_string(kMaxJsonDepth) + " deep");
      return false;
    }
    const bool is_array = value.as<JsonValue::Array>() != nullptr;
    const bool is_long =
        is_array && (stack_.empty() || (stack_.size() == 1 && stack_.front().key == array_));
    stack_.push_back({std::move(value), {}, {}});
    if (on_item_ && is_long && !streaming_) {
      streaming_ = true;
      streaming_depth_ = stack_.size();
    }
    return true;
  }

  bool close() {
    streaming_ = streaming_ && !in_long_array();
    JsonValue value = std::move(stack_.back().value);
    stack_.pop_back();
    return put(std::move(value));
  }

  std::string_view text_;
  std::string_view file_;
  std::string_view array_;
  const OnJsonItem& on_item_;
  JsonValue root_;
  std::vector<Open> stack_;
  bool streaming_ = false;           ///< inside the long array
  std::size_t streaming_depth_ = 0;  ///< of the stack, when the long array is innermost
  std::size_t items_ = 0;            ///< handed on
  std::vector<Diagnostic> faults_;
};

}  // namespace

std::string JsonValue::shown() const {
  return std::visit(
      []<typename T>(const T& v) -> std::string {
        if constexpr (std::is_same_v<T, std::nullptr_t>) {
          return "null";
        } else if constexpr (std::is_same_v<T, bool>) {
          return v ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::int64_t>) {
          return std::to_string(v);
        } else if constexpr (std::is_same_v<T, JsonNumber>) {
          return v.text;
        } else if constexpr (std::is_same_v<T, std::string>) {
          return "the string " + json_quoted(v.substr(0, kShownBytes)) +
                 (v.size() > kShownBytes ? "..." : "");
        } else if constexpr (std::is_same_v<T, Array>) {
          return "an array";
        } else {
          return "an object";
        }
      },
      value);
}

const JsonValue* JsonValue::find(std::string_view key) const {
  if (const auto* members = as<Object>()) {
    for (const JsonMember& member : *members) {
      if (member.key == key) {
        return &member.value;
      }
    }
  }
  return nullptr;
}

Result<JsonValue> parse_json(std::string_view text,
                             std::string_view file,
                             std::string_view array,
                             const OnJsonItem& on_item) {
  TreeBuilder builder(text, file, array, on_item);
  if (text.substr(0, 3) == "\xEF\xBB\xBF") {
    builder.fault("json-syntax", "line 1, column 1",
                  "starts with a byte order mark: save the file without it");
    return std::move(builder).finish();
  }
  try {
    nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const std::exception& error) {
    builder.fault("json-syntax", "the document", error.what());
  }
  return std::move(builder).finish();
}

Result<JsonValue> parse_json(std::string_view text, std::string_view file) {
  return parse_json(text, file, "", {});
}

std::string json_quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace xpipe::ir
