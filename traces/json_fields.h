// Strict reading of one JSON object: each member is asked for by name and type, and what nobody
// asked for is a fault. Faults are collected, with JSON paths; a value that is not there is given
// as something harmless, so that reading goes on and finds the rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/status.h"
#include "traces/trace_json.h"

namespace xpipe::traces {

/// Where faults of one file go.
struct FaultList {
  std::string file;
  std::vector<ir::Diagnostic> faults;

  void add(std::string code, std::string_view where, std::string message) {
    faults.push_back({std::move(code), place(file, where), std::move(message)});
  }
};

class JsonFields {
 public:
  /// `value` and `faults` must outlive this. `path` is the JSON path of `value`.
  JsonFields(const JsonValue& value, std::string path, FaultList& faults);

  /// A whole number of [low, high]; `low` where there is none.
  std::int64_t whole(std::string_view name, std::int64_t low, std::int64_t high);

  /// A string; "" where there is none.
  std::string text(std::string_view name);

  /// The member, of that kind; nullptr where there is none.
  const JsonValue* member(std::string_view name, JsonValue::Kind kind);

  /// The same, and no fault when there is none.
  const JsonValue* optional_member(std::string_view name, JsonValue::Kind kind);

  /// Faults for the members that were not asked for. Call it last.
  void finish();

  [[nodiscard]] std::string path_of(std::string_view name) const;

  [[nodiscard]] FaultList& faults() { return faults_; }

 private:
  const JsonValue& value_;
  std::string path_;
  FaultList& faults_;
  std::vector<bool> asked_;  ///< by member
  bool readable_;            ///< it is an object
};

}  // namespace xpipe::traces
