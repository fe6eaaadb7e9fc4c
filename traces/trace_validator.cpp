#include "traces/trace_validator.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "traces/json_fields.h"
#include "traces/trace_json.h"
#include "traces/track_check.h"

namespace xpipe::traces {

namespace {

using ir::Nanos;
using Kind = JsonValue::Kind;

constexpr std::int64_t kMaxId = 0xffffffffLL;
constexpr std::int64_t kMaxFractionDigits = 15;
constexpr std::string_view kPhases = "BEXbenCMIiRstfTPNODSFpvVc()";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/// The digits of the first `"rank":\s+(\d+)` on a line of `text`: HTA's regular expression.
std::optional<std::string_view> rank_found_by_hta(std::string_view text) {
  constexpr std::string_view kKey = "\"rank\":";
  for (std::size_t at = text.find(kKey); at != std::string_view::npos;
       at = text.find(kKey, at + 1)) {
    std::string_view rest = text.substr(at + kKey.size());
    const auto blank = static_cast<std::size_t>(
        std::find_if_not(rest.begin(), rest.end(), is_space) - rest.begin());
    rest.remove_prefix(blank);
    const auto digits = static_cast<std::size_t>(
        std::find_if_not(rest.begin(), rest.end(), is_digit) - rest.begin());
    if (blank > 0 && digits > 0) {
      return rest.substr(0, digits);
    }
  }
  return std::nullopt;
}

/// Digits after the point once the exponent is applied.
std::int64_t fraction_digits(std::string_view number) {
  const std::size_t exponent = number.find_first_of("eE");
  const std::string_view mantissa = number.substr(0, exponent);
  const std::size_t point = mantissa.find('.');
  std::int64_t digits =
      point == std::string_view::npos ? 0 : static_cast<std::int64_t>(mantissa.size() - point - 1);
  if (exponent != std::string_view::npos) {
    digits -= std::strtol(std::string(number.substr(exponent + 1)).c_str(), nullptr, 10);
  }
  return digits;
}

class Validator {
 public:
  explicit Validator(std::string_view file) : faults_{std::string(file), {}} {}

  std::vector<ir::Diagnostic> check(std::string_view text) {
    if (text.substr(0, 2) != "{\"") {
      faults_.add("trace-9", "line 1, column 1",
                  "viewers know a trace by its first bytes {\" (no space between)");
    }
    const auto document =
        read_trace_json(text, faults_.file,
                        [this](std::size_t index, const JsonValue& value) { event(index, value); });
    if (!document.ok()) {
      std::vector<ir::Diagnostic> faults = std::move(faults_.faults);
      std::erase_if(faults, [](const ir::Diagnostic& fault) { return fault.code != "trace-9"; });
      for (const ir::Diagnostic& fault : document.error().diagnostics) {
        faults.push_back({"trace-1", fault.where, fault.message});
      }
      return faults;
    }
    if (!document.value().has_events) {
      faults_.add("trace-9", "/", "there is no array `traceEvents`");
    }
    tracks_.finish(faults_);
    rank(text, document.value().header);
    return std::move(faults_.faults);
  }

 private:
  void event(std::size_t index, const JsonValue& event) {
    const std::string path = event_path(index);
    const JsonValue* phase = event.find("ph");
    if (phase == nullptr || !phase->is(Kind::String) || phase->text.size() != 1 ||
        kPhases.find(phase->text[0]) == std::string_view::npos) {
      faults_.add("trace-2", path + "/ph",
                  phase == nullptr ? "an event without `ph`: " + shown(event)
                                   : "found " + shown(*phase) + ", expected one letter of " +
                                         std::string(kPhases));
      return;
    }
    const char ph = phase->text[0];
    const std::optional<Nanos> ts = time(event, path, "ts", ph != 'M', "trace-2");
    const std::optional<std::int64_t> pid = id(event, path, "pid", true);
    const bool per_process = ph == 'C' || (ph == 'M' && is_process_metadata(event));
    const std::optional<std::int64_t> tid = id(event, path, "tid", !per_process);
    std::optional<Nanos> dur;
    if (ph == 'X') {
      dur = time(event, path, "dur", true, "trace-3");
      if (ts && dur && *dur > std::numeric_limits<Nanos>::max() - *ts) {
        faults_.add("trace-3", path + "/dur", "ts + dur is beyond 2^63 ns");
        return;
      }
    }
    if (ph == 'C') {
      counter(event, path);
    }
    if (!pid) {
      return;
    }
    if (ph == 'M') {
      metadata(event, *pid, tid);
      return;
    }
    tracks_.use_process(*pid, index);
    if (!tid) {
      return;
    }
    const Thread thread{*pid, *tid};
    tracks_.use(thread, index);
    if (!ts) {
      return;
    }
    if (ph == 'X' && dur) {
      tracks_.slice(thread, *ts, *ts + *dur, index);
    } else if (ph == 'B') {
      tracks_.begin(thread, *ts, index);
    } else if (ph == 'E') {
      tracks_.end(thread, *ts, index, faults_);
    } else if (ph == 's' || ph == 't' || ph == 'f') {
      flow(event, path, ph, thread, *ts, index);
    }
  }

  std::optional<Nanos> time(const JsonValue& event,
                            const std::string& path,
                            std::string_view name,
                            bool required,
                            std::string_view code_if_missing) {
    const JsonValue* found = event.find(name);
    if (found == nullptr) {
      if (required) {
        faults_.add(std::string(code_if_missing), path,
                    "the event has no `" + std::string(name) + "`");
      }
      return std::nullopt;
    }
    const std::optional<Nanos> nanos = nanos_from_us(*found);
    if (!nanos || *nanos < 0) {
      faults_.add("trace-3", path + "/" + std::string(name),
                  "found " + shown(*found) +
                      ", expected microseconds >= 0 in fixed notation that are whole nanoseconds");
      return std::nullopt;
    }
    return nanos;
  }

  std::optional<std::int64_t> id(const JsonValue& event,
                                 const std::string& path,
                                 std::string_view name,
                                 bool required) {
    const JsonValue* found = event.find(name);
    if (found == nullptr && !required) {
      return std::nullopt;
    }
    const std::optional<std::int64_t> number =
        found == nullptr ? std::nullopt : whole_number(*found);
    if (!number || *number < 1 || *number > kMaxId) {
      faults_.add("trace-4", path + "/" + std::string(name),
                  (found == nullptr ? "it is missing" : "found " + shown(*found)) +
                      ", expected a whole number from 1 to 2^32 - 1");
      return std::nullopt;
    }
    return number;
  }

  static bool is_process_metadata(const JsonValue& event) {
    const JsonValue* name = event.find("name");
    return name != nullptr && name->text.starts_with("process_");
  }

  void metadata(const JsonValue& event, std::int64_t pid, std::optional<std::int64_t> tid) {
    const JsonValue* name = event.find("name");
    const JsonValue* args = event.find("args");
    const JsonValue* value = args == nullptr ? nullptr : args->find("name");
    if (name == nullptr || value == nullptr || !value->is(Kind::String)) {
      return;
    }
    if (name->text == "process_name") {
      tracks_.name_process(pid);
    } else if (name->text == "thread_name" && tid) {
      tracks_.name({pid, *tid});
    }
  }

  void flow(const JsonValue& event,
            const std::string& path,
            char ph,
            Thread thread,
            Nanos ts,
            std::size_t index) {
    const JsonValue* id = event.find("id");
    if (id == nullptr || (!id->is(Kind::String) && !whole_number(*id))) {
      faults_.add("trace-7", path + "/id",
                  (id == nullptr ? "it is missing" : "found " + shown(*id)) +
                      ", expected a whole number or a string");
      return;
    }
    if (!id_kind_) {
      id_kind_ = id->kind;
    } else if (*id_kind_ != id->kind) {
      faults_.add("trace-7", path + "/id",
                  "found " + shown(*id) + ", but the ids before are " +
                      (id->is(Kind::String) ? "numbers" : "strings") +
                      ": viewers read strings as hexadecimal");
    }
    const auto text_of = [&event](std::string_view name) {
      const JsonValue* found = event.find(name);
      return found == nullptr ? std::string("-") : shown(*found);
    };
    tracks_.flow("(" + text_of("cat") + ", " + text_of("name") + ", " + id->text + ")", ph, thread,
                 ts, index);
  }

  void counter(const JsonValue& event, const std::string& path) {
    const JsonValue* args = event.find("args");
    if (args == nullptr || !args->is(Kind::Object) || args->members.empty()) {
      faults_.add("trace-8", path + "/args", "a counter has an object of numbers, not empty");
      return;
    }
    for (const auto& [name, value] : args->members) {
      std::string where = path;
      where.append("/args/").append(name);
      if (!value.is(Kind::Number)) {
        faults_.add("trace-8", where, "found " + shown(value) + ", expected a number");
      } else if (fraction_digits(value.text) > kMaxFractionDigits) {
        faults_.add("trace-8", where,
                    "found " + shown(value) + ", expected at most " +
                        std::to_string(kMaxFractionDigits) + " fraction digits");
      }
    }
  }

  void rank(std::string_view text, const JsonValue& header) {
    const std::optional<std::string_view> found = rank_found_by_hta(text);
    const JsonValue* info = header.find("distributedInfo");
    const JsonValue* rank = info == nullptr ? nullptr : info->find("rank");
    const std::optional<std::int64_t> number = rank == nullptr ? std::nullopt : whole_number(*rank);
    if (!number || *number < 0) {
      faults_.add("trace-10", "/distributedInfo/rank", "expected the rank, a whole number >= 0");
    } else if (!found || *found != rank->text) {
      faults_.add("trace-10", "/distributedInfo/rank",
                  "HTA takes the first `\"rank\": <digits>` of the file, with a space, and finds " +
                      (found ? std::string(*found) : "none") + ", not " + rank->text +
                      ": write the header indented and before the events");
    }
  }

  FaultList faults_;
  TrackCheck tracks_;
  std::optional<Kind> id_kind_;  ///< of the first flow
};

}  // namespace

std::vector<ir::Diagnostic> validate_trace(std::string_view text, std::string_view file) {
  return Validator(file).check(text);
}

}  // namespace xpipe::traces
