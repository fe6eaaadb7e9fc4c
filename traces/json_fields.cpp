#include "traces/json_fields.h"

#include <optional>
#include <utility>

namespace xpipe::traces {

using Kind = JsonValue::Kind;

JsonFields::JsonFields(const JsonValue& value, std::string path, FaultList& faults)
    : value_(value),
      path_(std::move(path)),
      faults_(faults),
      asked_(value.members.size(), false),
      readable_(value.is(Kind::Object)) {
  if (!readable_) {
    faults_.add("trace-type", path_, "found " + shown(value) + ", expected an object");
  }
}

std::int64_t JsonFields::whole(std::string_view name, std::int64_t low, std::int64_t high) {
  const JsonValue* found = member(name, Kind::Number);
  if (found == nullptr) {
    return low;
  }
  const std::optional<std::int64_t> number = whole_number(*found);
  if (!number || *number < low || *number > high) {
    faults_.add("trace-value", path_of(name),
                "found " + shown(*found) + ", expected " +
                    (low == high ? std::to_string(low)
                                 : "a whole number from " + std::to_string(low) + " to " +
                                       std::to_string(high)));
    return low;
  }
  return *number;
}

std::string JsonFields::text(std::string_view name) {
  const JsonValue* found = member(name, Kind::String);
  return found == nullptr ? "" : found->text;
}

const JsonValue* JsonFields::member(std::string_view name, Kind kind) {
  const JsonValue* found = optional_member(name, kind);
  if (found == nullptr && readable_ && value_.find(name) == nullptr) {
    faults_.add("trace-missing-key", path_of(name),
                "the key is missing: expected " + std::string(kind_text(kind)));
  }
  return found;
}

const JsonValue* JsonFields::optional_member(std::string_view name, Kind kind) {
  for (std::size_t i = 0; i < value_.members.size(); ++i) {
    const auto& [key, found] = value_.members[i];
    if (key == name) {
      asked_[i] = true;
      if (!found.is(kind)) {
        faults_.add("trace-type", path_of(name),
                    "found " + shown(found) + ", expected " + std::string(kind_text(kind)));
        return nullptr;
      }
      return &found;
    }
  }
  return nullptr;
}

void JsonFields::finish() {
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    if (!asked_[i]) {
      faults_.add("trace-unknown-key", path_of(value_.members[i].first),
                  "our traces have no such key here");
    }
  }
}

std::string JsonFields::path_of(std::string_view name) const {
  return path_ + "/" + std::string(name);
}

}  // namespace xpipe::traces
