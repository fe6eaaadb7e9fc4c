#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "ir/decimal.h"
#include "ir/strict_json.h"
#include "ir/utf8.h"

namespace xpipe::ir {

void JsonFaults::add(std::string code, std::string_view path, std::string_view message) {
  std::string where = path.empty() ? "the document" : one_line(path);
  if (!file_.empty()) {
    where = file_ + ": " + where;
  }
  diagnostics_.push_back({std::move(code), std::move(where), one_line(message)});
}

Error JsonFaults::error() && {
  return Error{ErrorKind::BadInput, std::move(diagnostics_)};
}

std::vector<Diagnostic> JsonFaults::take() && {
  return std::move(diagnostics_);
}

JsonObject::JsonObject(const JsonValue& value, std::string path, JsonFaults& faults)
    : members_(std::get_if<JsonValue::Object>(&value.value)),
      path_(std::move(path)),
      faults_(faults) {
  if (members_ == nullptr) {
    faults_.add("json-type", path_, "expected an object, found " + value.shown());
  }
}

std::string JsonObject::path_of(std::string_view key) const {
  std::string path = path_ + "/";
  for (const char c : key) {
    path += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return path;
}

void JsonObject::fault(std::string code, std::string_view key, std::string_view message) {
  faults_.add(std::move(code), path_of(key), message);
}

void JsonObject::wrong_type(std::string_view key,
                            const JsonValue& found,
                            std::string_view expected) {
  fault("json-type", key, "expected " + std::string(expected) + ", found " + found.shown());
}

const JsonValue* JsonObject::get(std::string_view key, Need need) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) {
    asked_.emplace_back(key);
  }
  if (members_ == nullptr) {
    return nullptr;
  }
  for (const auto& [name, value] : *members_) {
    if (name == key) {
      return &value;
    }
  }
  if (need == Need::Required) {
    fault("json-missing-key", key, "is missing: expected the key \"" + std::string(key) + "\"");
  }
  return nullptr;
}

const JsonValue::Array* JsonObject::array(std::string_view key, Need need) {
  const JsonValue* value = get(key, need);
  if (value == nullptr) {
    return nullptr;
  }
  const auto* array = std::get_if<JsonValue::Array>(&value->value);
  if (array == nullptr) {
    wrong_type(key, *value, "an array");
  }
  return array;
}

const JsonValue::Object* JsonObject::object(std::string_view key, Need need) {
  const JsonValue* value = get(key, need);
  if (value == nullptr) {
    return nullptr;
  }
  const auto* object = std::get_if<JsonValue::Object>(&value->value);
  if (object == nullptr) {
    wrong_type(key, *value, "an object");
  }
  return object;
}

std::optional<std::string> JsonObject::string(std::string_view key, Need need) {
  const JsonValue* value = get(key, need);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (const auto* text = std::get_if<std::string>(&value->value)) {
    return *text;
  }
  wrong_type(key, *value, "a string");
  return std::nullopt;
}

std::optional<bool> JsonObject::boolean(std::string_view key, Need need) {
  const JsonValue* value = get(key, need);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (const auto* flag = std::get_if<bool>(&value->value)) {
    return *flag;
  }
  wrong_type(key, *value, "true or false");
  return std::nullopt;
}

std::optional<std::int64_t> JsonObject::integer(std::string_view key,
                                                std::int64_t least,
                                                std::int64_t most,
                                                Need need) {
  const JsonValue* value = get(key, need);
  if (value == nullptr) {
    return std::nullopt;
  }
  const std::string range = least == most ? std::to_string(least)
                                          : "a whole number from " + std::to_string(least) +
                                                " to " + std::to_string(most);
  if (const auto* number = std::get_if<std::int64_t>(&value->value)) {
    if (*number >= least && *number <= most) {
      return *number;
    }
    fault("json-range", key, "expected " + range + ", found " + value->shown());
    return std::nullopt;
  }
  wrong_type(key, *value, range);
  return std::nullopt;
}

std::optional<Bytes> JsonObject::bytes(std::string_view key, Need need) {
  return integer(key, 0, std::numeric_limits<Bytes>::max(), need);
}

std::optional<double> JsonObject::positive(std::string_view key, Need need) {
  const JsonValue* value = get(key, need);
  if (value == nullptr) {
    return std::nullopt;
  }
  double number = 0.0;
  if (const auto* whole = std::get_if<std::int64_t>(&value->value)) {
    number = static_cast<double>(*whole);
  } else if (const auto* decimal = std::get_if<JsonNumber>(&value->value)) {
    number = std::strtod(decimal->text.c_str(), nullptr);
  } else {
    wrong_type(key, *value, "a number greater than 0");
    return std::nullopt;
  }
  if (!(number > 0.0) || !std::isfinite(number)) {
    fault("json-range", key, "expected a number greater than 0, found " + value->shown());
    return std::nullopt;
  }
  return number;
}

std::optional<Nanos> JsonObject::micros(std::string_view key, Need need) {
  const JsonValue* value = get(key, need);
  if (value == nullptr) {
    return std::nullopt;
  }
  std::string text;
  if (const auto* whole = std::get_if<std::int64_t>(&value->value)) {
    text = std::to_string(*whole);
  } else if (const auto* decimal = std::get_if<JsonNumber>(&value->value)) {
    text = decimal->text;
  } else {
    wrong_type(key, *value, "microseconds, a number of at least 0");
    return std::nullopt;
  }
  const std::optional<ScaledDecimal> nanos = scaled_decimal(text, 3);
  if (!nanos || text[0] == '-') {
    fault("json-range", key,
          "expected microseconds from 0 to 9223372036854775.807, found " + value->shown());
    return std::nullopt;
  }
  return nanos->value;
}

void JsonObject::expect_format(std::string_view name, std::int64_t version) {
  const std::optional<std::string> format = string("format", Need::Required);
  if (format && *format != name) {
    fault("format", "format",
          "expected \"" + std::string(name) + "\", found " + json_quoted(*format));
  }
  const JsonValue* value = get("version", Need::Required);
  if (value != nullptr) {
    const auto* found = std::get_if<std::int64_t>(&value->value);
    if (found == nullptr || *found != version) {
      fault("format", "version",
            "expected version " + std::to_string(version) + ", found " + value->shown());
    }
  }
}

void JsonObject::refuse_unknown() {
  if (members_ == nullptr) {
    return;
  }
  for (const auto& [name, value] : *members_) {
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) {
      continue;
    }
    std::string keys;
    for (const std::string& key : asked_) {
      keys.append(keys.empty() ? "" : ", ").append(key);
    }
    fault("json-unknown-key", name, "unknown key: expected one of " + keys);
  }
}

}  // namespace xpipe::ir
