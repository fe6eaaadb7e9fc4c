#include "traces/trace_validator.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "ir/decimal.h"
#include "ir/strict_json.h"
#include "traces/trace_json.h"
#include "traces/track_check.h"

namespace xpipe::traces {

namespace {

using ir::JsonValue;
using ir::Nanos;

constexpr std::int64_t kMaxId = 0xffffffffLL;
constexpr std::int64_t kMaxFractionDigits = 15;
constexpr std::string_view kPhases = "BEXbenCMIiRstfTPNODSFpvVc()";

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
        std::find_if_not(rest.begin(), rest.end(), ir::is_digit) - rest.begin());
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
  explicit Validator(std::string_view file) : file_(file), faults_(file) {}

  std::vector<ir::Diagnostic> check(std::string_view text) {
    if (text.substr(0, 2) != "{\"") {
      faults_.add("trace-9", "line 1, column 1",
                  "viewers know a trace by its first bytes {\" (no space between)");
    }
    const auto document = read_trace_json(
        text, file_, [this](std::size_t index, const JsonValue& value) { event(index, value); });
    if (!document.ok()) {
      std::vector<ir::Diagnostic> faults = std::move(faults_).take();
      std::erase_if(faults, [](const ir::Diagnostic& fault) { return fault.code != "trace-9"; });
      for (const ir::Diagnostic& fault : document.error().diagnostics) {
        faults.push_back({"trace-1", fault.where, fault.message});
      }
      return faults;
    }
    const JsonValue* events = document.value().find("traceEvents");
    const bool bare = document.value().as<JsonValue::Array>() != nullptr;
    if (!bare && (events == nullptr || events->as<JsonValue::Array>() == nullptr)) {
      faults_.add("trace-9", "/traceEvents", "there is no array `traceEvents`");
    }
    tracks_.finish(faults_);
    rank(text, document.value());
    return std::move(faults_).take();
  }

 private:
  void event(std::size_t index, const JsonValue& event) {
    const std::string path = event_path(index);
    const JsonValue* phase = event.find("ph");
    const auto* letter = phase == nullptr ? nullptr : phase->as<std::string>();
    if (letter == nullptr || letter->size() != 1 ||
        kPhases.find(letter->front()) == std::string_view::npos) {
      faults_.add("trace-2", path + "/ph",
                  phase == nullptr ? "an event without `ph`: " + event.shown()
                                   : "found " + phase->shown() + ", expected one letter of " +
                                         std::string(kPhases));
      return;
    }
    const char ph = letter->front();
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
                  "found " + found->shown() +
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
                  (found == nullptr ? "it is missing" : "found " + found->shown()) +
                      ", expected a whole number from 1 to 2^32 - 1");
      return std::nullopt;
    }
    return number;
  }

  static bool is_process_metadata(const JsonValue& event) {
    const JsonValue* name = event.find("name");
    const auto* text = name == nullptr ? nullptr : name->as<std::string>();
    return text != nullptr && text->starts_with("process_");
  }

  void metadata(const JsonValue& event, std::int64_t pid, std::optional<std::int64_t> tid) {
    const JsonValue* found = event.find("name");
    const auto* name = found == nullptr ? nullptr : found->as<std::string>();
    const JsonValue* args = event.find("args");
    const JsonValue* value = args == nullptr ? nullptr : args->find("name");
    if (name == nullptr || value == nullptr || value->as<std::string>() == nullptr) {
      return;
    }
    if (*name == "process_name") {
      tracks_.name_process(pid);
    } else if (*name == "thread_name" && tid) {
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
    const bool is_text = id != nullptr && id->as<std::string>() != nullptr;
    if (id == nullptr || (!is_text && !whole_number(*id))) {
      faults_.add("trace-7", path + "/id",
                  (id == nullptr ? "it is missing" : "found " + id->shown()) +
                      ", expected a whole number or a string");
      return;
    }
    if (!ids_are_text_) {
      ids_are_text_ = is_text;
    } else if (*ids_are_text_ != is_text) {
      faults_.add("trace-7", path + "/id",
                  "found " + id->shown() + ", but the ids before are " +
                      (is_text ? "numbers" : "strings") + ": viewers read strings as hexadecimal");
    }
    const auto text_of = [&event](std::string_view name) {
      const JsonValue* found = event.find(name);
      return found == nullptr ? std::string("-") : found->shown();
    };
    tracks_.flow("(" + text_of("cat") + ", " + text_of("name") + ", " + id->shown() + ")", ph,
                 thread, ts, index);
  }

  void counter(const JsonValue& event, const std::string& path) {
    const JsonValue* args = event.find("args");
    const auto* members = args == nullptr ? nullptr : args->as<JsonValue::Object>();
    if (members == nullptr || members->empty()) {
      faults_.add("trace-8", path + "/args", "a counter has an object of numbers, not empty");
      return;
    }
    for (const auto& [name, value] : *members) {
      std::string where = path;
      where.append("/args/").append(name);
      const std::optional<std::string> digits = digits_of(value);
      if (!digits) {
        faults_.add("trace-8", where, "found " + value.shown() + ", expected a number");
      } else if (fraction_digits(*digits) > kMaxFractionDigits) {
        faults_.add("trace-8", where,
                    "found " + value.shown() + ", expected at most " +
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
    } else if (!found || *found != std::to_string(*number)) {
      faults_.add("trace-10", "/distributedInfo/rank",
                  "HTA takes the first `\"rank\": <digits>` of the file, with a space, and finds " +
                      (found ? std::string(*found) : "none") + ", not " + std::to_string(*number) +
                      ": write the header indented and before the events");
    }
  }

  std::string_view file_;
  ir::JsonFaults faults_;
  TrackCheck tracks_;
  std::optional<bool> ids_are_text_;  ///< of the first flow
};

}  // namespace

std::vector<ir::Diagnostic> validate_trace(std::string_view text, std::string_view file) {
  return Validator(file).check(text);
}

}  // namespace xpipe::traces
