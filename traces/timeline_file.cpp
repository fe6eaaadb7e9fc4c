#include "traces/timeline_file.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ir/strict_json.h"
#include "ir/text.h"
#include "traces/trace_json.h"
#include "traces/trace_layout.h"

namespace xpipe::traces {

namespace {

using ir::index_of;
using ir::JsonObject;
using ir::JsonValue;
using ir::Nanos;
using ir::Need;
using ir::TaskId;

constexpr std::int64_t kMax16 = std::numeric_limits<std::uint16_t>::max();
constexpr std::int64_t kMax32 = std::numeric_limits<std::uint32_t>::max();
constexpr Nanos kMaxTime = std::numeric_limits<Nanos>::max();

/// One slice of the file.
struct Slice {
  std::size_t event = 0;  ///< its place among the events
  std::int64_t pid = 0;
  std::int64_t tid = 0;
  ir::Task task;
  ir::Span span;
  std::vector<TaskId> after;
};

class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file), faults_(file) {}

  ir::Result<TimelineFile> read(std::string_view text) {
    const auto document = read_trace_json(
        text, file_,
        [this](std::size_t index, const JsonValue& event) { this->event(index, event); });
    if (!document.ok()) {
      return document.error();
    }
    const JsonValue* events = document.value().find("traceEvents");
    if (events == nullptr || events->as<JsonValue::Array>() == nullptr) {
      faults_.add("trace-format", "",
                  "expected one of our traces: an object with `metadata` and `traceEvents`");
      return std::move(faults_).error();
    }
    header(document.value());
    if (faults_.empty()) {
      assemble();
    }
    if (!faults_.empty()) {
      return std::move(faults_).error();
    }
    return std::move(result_);
  }

 private:
  static std::string path_of(std::size_t event) { return "/traceEvents/" + std::to_string(event); }

  void event(std::size_t index, const JsonValue& event) {
    const JsonValue* found = event.find("ph");
    const auto* phase = found == nullptr ? nullptr : found->as<std::string>();
    if (phase == nullptr) {
      faults_.add("json-missing-key", path_of(index) + "/ph",
                  "an event of our traces has a `ph`: X, M, C, s or f");
    } else if (*phase == "X") {
      slice(index, event);
    } else if (*phase != "M" && *phase != "C" && *phase != "s" && *phase != "f") {
      faults_.add("trace-value", path_of(index) + "/ph",
                  "found " + found->shown() + ", our traces have only X, M, C, s and f");
    }
  }

  /// A whole number of [low, high]; `low` where there is none.
  static std::int64_t whole(JsonObject& object,
                            std::string_view key,
                            std::int64_t low,
                            std::int64_t high) {
    return object.integer(key, low, high, Need::Required).value_or(low);
  }

  static std::string text(JsonObject& object, std::string_view key) {
    return object.string(key, Need::Required).value_or("");
  }

  void slice(std::size_t index, const JsonValue& event) {
    JsonObject fields(event, path_of(index), faults_);
    Slice slice{.event = index, .task = {}, .span = {}, .after = {}};
    text(fields, "ph");
    slice.pid = whole(fields, "pid", 1, kMax16 + 1);
    slice.tid = whole(fields, "tid", 1, kMax32);
    const JsonValue* ts = fields.get("ts", Need::Required);
    const JsonValue* dur = fields.get("dur", Need::Required);
    const std::string name = text(fields, "name");
    const std::string category = text(fields, "cat");
    const JsonValue* args = fields.get("args", Need::Required);
    fields.refuse_unknown();
    if (args == nullptr || ts == nullptr || dur == nullptr) {
      return;
    }
    const auto task = ir::task_from_text(name);
    if (!task.ok()) {
      fields.fault("trace-value", "name",
                   "not the text of a task: " + task.error().diagnostics.front().message);
      return;
    }
    slice.task = task.value();
    if (category != kind_name(slice.task.kind())) {
      fields.fault("trace-value", "cat",
                   "found \"" + category + "\", expected \"" +
                       std::string(kind_name(slice.task.kind())) + "\" for " + name);
    }
    arguments(*args, fields.path_of("args"), slice);
    time(*ts, fields.path_of("ts"), slice.span.start);
    time(*dur, fields.path_of("dur"), slice.span.end - slice.span.start);
    slices_.push_back(std::move(slice));
  }

  void arguments(const JsonValue& args, const std::string& path, Slice& slice) {
    JsonObject fields(args, path, faults_);
    slice.span.task = TaskId(static_cast<std::uint32_t>(whole(fields, "task", 0, kMax32)));
    slice.span.start = whole(fields, "start_ns", 0, kMaxTime);
    slice.span.end = whole(fields, "end_ns", slice.span.start, kMaxTime);
    for (const auto& [name, value] : facts_of(slice.task)) {
      whole(fields, name, value, value);
    }
    if (const JsonValue::Array* after = fields.array("after", Need::Optional)) {
      for (std::size_t i = 0; i < after->size(); ++i) {
        const auto id = whole_number((*after)[i]);
        if (!id || *id < 0 || *id > kMax32) {
          faults_.add("trace-value", fields.path_of("after") + "/" + std::to_string(i),
                      "found " + (*after)[i].shown() + ", expected the id of a task");
          continue;
        }
        slice.after.push_back(TaskId{static_cast<std::uint32_t>(*id)});
      }
    }
    fields.refuse_unknown();
  }

  /// The time in µs must be the one in ns.
  void time(const JsonValue& found, const std::string& path, Nanos expected) {
    const auto nanos = nanos_from_us(found);
    if (!nanos || *nanos != expected) {
      faults_.add("trace-value", path,
                  "found " + found.shown() + " us, but start_ns and end_ns of its args say " +
                      std::to_string(expected) + " ns");
    }
  }

  void header(const JsonValue& header) {
    JsonObject top(header, "", faults_);
    whole(top, "schemaVersion", 1, 1);
    top.object("distributedInfo", Need::Required);
    text(top, "displayTimeUnit");
    whole(top, "baseTimeNanoseconds", std::numeric_limits<Nanos>::min(), kMaxTime);
    text(top, "traceName");
    top.array("traceEvents", Need::Required);
    const JsonValue* metadata = top.get("metadata", Need::Required);
    top.refuse_unknown();
    if (metadata == nullptr) {
      return;
    }
    JsonObject meta(*metadata, "/metadata", faults_);
    expect(meta, "format", {kTraceFormat});
    whole(meta, "version", kTraceFormatVersion, kTraceFormatVersion);
    result_.timeline.measured = expect(meta, "kind", {"plan", "run"}) == "run";
    result_.info.title = text(meta, "title");
    result_.info.base_time_ns =
        whole(meta, "base_time_ns", std::numeric_limits<Nanos>::min(), kMaxTime);
    makespan_ = whole(meta, "makespan_ns", 0, kMaxTime);
    tasks_ = whole(meta, "tasks", 0, kMax32);
    ir::Schedule& schedule = result_.schedule;
    schedule.policy = text(meta, "policy");
    pairs(meta, "options", schedule.options);
    schedule.micro_batches = static_cast<std::uint32_t>(whole(meta, "micro_batches", 1, kMax32));
    schedule.mini_batches = static_cast<std::uint32_t>(whole(meta, "mini_batches", 0, kMax32));
    schedule.devices = static_cast<std::uint32_t>(whole(meta, "devices", 0, kMax16 + 1));
    each(meta, "stages", [&](JsonObject& stage) {
      ir::StageInfo info;
      info.devices = {device(stage, "device")};
      replicas(stage, info.devices);
      info.slots = static_cast<std::uint16_t>(whole(stage, "slots", 1, kMax16));
      schedule.stages.push_back(std::move(info));
    });
    each(meta, "lanes", [&](JsonObject& lane) {
      const std::int64_t tid = tid_of(schedule.lanes.size());
      whole(lane, "tid", tid, tid);
      const std::string kind = expect(lane, "kind", {"compute", "send", "receive"});
      schedule.lanes.push_back({kind == "send"      ? ir::LaneKind::Send
                                : kind == "receive" ? ir::LaneKind::Receive
                                                    : ir::LaneKind::Compute,
                                device(lane, "device"),
                                device(lane, "peer"),
                                {}});
    });
    layers(meta);
    pairs(meta, "facts", result_.info.facts);
    meta.refuse_unknown();
  }

  /// The devices of a replicated stage, the first one's included.
  void replicas(JsonObject& stage, std::vector<ir::DeviceId>& devices) {
    const JsonValue::Array* list = stage.array("devices", Need::Optional);
    if (list == nullptr) {
      return;
    }
    const ir::DeviceId first = devices.front();
    devices.clear();
    for (std::size_t i = 0; i < list->size(); ++i) {
      const auto number = whole_number((*list)[i]);
      if (!number || *number < 0 ||
          *number >= std::max<std::int64_t>(result_.schedule.devices, 1)) {
        faults_.add("trace-value", stage.path_of("devices") + "/" + std::to_string(i),
                    "found " + (*list)[i].shown() + ", expected a device of this trace");
        continue;
      }
      devices.push_back(ir::DeviceId(static_cast<std::uint16_t>(*number)));
    }
    if (devices.empty() || devices.front() != first) {
      stage.fault("trace-value", "devices",
                  "expected a device for each replica, the first of them " +
                      std::to_string(index_of(first)) + ", as in `device`");
      devices = {first};
    }
  }

  ir::DeviceId device(JsonObject& fields, std::string_view name) {
    const auto devices = std::max<std::int64_t>(result_.schedule.devices, 1);
    return ir::DeviceId(static_cast<std::uint16_t>(whole(fields, name, 0, devices - 1)));
  }

  /// A string that is one of `words`.
  static std::string expect(JsonObject& fields,
                            std::string_view name,
                            const std::vector<std::string_view>& words) {
    const std::optional<std::string> found = fields.string(name, Need::Required);
    if (found && std::find(words.begin(), words.end(), *found) == words.end()) {
      std::string expected;
      for (std::string_view word : words) {
        expected += (expected.empty() ? "\"" : " or \"") + std::string(word) + "\"";
      }
      fields.fault("trace-value", name,
                   "found " + ir::json_quoted(*found) + ", expected " + expected);
    }
    return found.value_or("");
  }

  void pairs(JsonObject& fields,
             std::string_view name,
             std::vector<std::pair<std::string, std::string>>& out) {
    const JsonValue::Object* found = fields.object(name, Need::Required);
    for (const auto& [key, value] : found == nullptr ? JsonValue::Object() : *found) {
      if (const auto* text = value.as<std::string>()) {
        out.emplace_back(key, *text);
      } else {
        faults_.add("json-type", fields.path_of(name) + "/" + key,
                    "expected a string, found " + value.shown());
      }
    }
  }

  template <typename Read>
  void each(JsonObject& fields, std::string_view name, Read&& read) {
    if (const JsonValue::Array* found = fields.array(name, Need::Required)) {
      for (std::size_t i = 0; i < found->size(); ++i) {
        JsonObject item((*found)[i], fields.path_of(name) + "/" + std::to_string(i), faults_);
        read(item);
        item.refuse_unknown();
      }
    }
  }

  void layers(JsonObject& meta) {
    const JsonValue::Array* found = meta.array("layers", Need::Required);
    for (std::size_t k = 0; found != nullptr && k < found->size(); ++k) {
      std::vector<std::string>& names = result_.info.layers.emplace_back();
      const auto* stage = (*found)[k].as<JsonValue::Array>();
      bool good = stage != nullptr;
      for (std::size_t i = 0; good && i < stage->size(); ++i) {
        const auto* name = (*stage)[i].as<std::string>();
        good = name != nullptr;
        names.push_back(good ? *name : "");
      }
      if (!good) {
        faults_.add("json-type", meta.path_of("layers") + "/" + std::to_string(k),
                    "expected a list of names per stage, found " + (*found)[k].shown());
      }
    }
  }

  /// Slices to schedule and timeline; the order of a lane is that of the file.
  void assemble() {
    ir::Schedule& schedule = result_.schedule;
    ir::Timeline& timeline = result_.timeline;
    const std::size_t count = slices_.size();
    if (static_cast<std::size_t>(tasks_) != count) {
      faults_.add("trace-tasks", "/metadata/tasks",
                  "says " + std::to_string(tasks_) + ", but the trace has " +
                      std::to_string(count) + " slices: was it cut?");
      return;
    }
    schedule.tasks.resize(count);
    timeline.spans.resize(count);
    std::vector<bool> seen(count, false);
    std::vector<Nanos> lane_end(schedule.lanes.size(), 0);
    for (Slice& slice : slices_) {
      const std::size_t id = index_of(slice.span.task);
      const auto lane = static_cast<std::size_t>(slice.tid - 1);
      const std::string where = path_of(slice.event);
      if (id >= count || seen[id]) {
        faults_.add("trace-tasks", where + "/args/task",
                    "found " + std::to_string(id) + ", expected each id from 0 to " +
                        std::to_string(count - 1) + " once");
        continue;
      }
      seen[id] = true;
      if (lane >= schedule.lanes.size() || pid_of(schedule.lanes[lane].device) != slice.pid) {
        faults_.add("trace-lane", where + "/tid",
                    "no lane with tid " + std::to_string(slice.tid) + " on pid " +
                        std::to_string(slice.pid) + " in /metadata/lanes");
        continue;
      }
      if (index_of(slice.task.stage) >= schedule.stages.size()) {
        faults_.add("trace-value", where + "/args/stage",
                    "/metadata/stages has only " + std::to_string(schedule.stages.size()));
      }
      if (slice.span.start < lane_end[lane]) {
        faults_.add("trace-overlap", where + "/args/start_ns",
                    "found " + std::to_string(slice.span.start) +
                        ", but the slice before it on this lane ends at " +
                        std::to_string(lane_end[lane]));
      }
      lane_end[lane] = slice.span.end;
      slice.task.lane = ir::LaneId(static_cast<std::uint32_t>(lane));
      schedule.tasks[id] = slice.task;
      schedule.lanes[lane].order.push_back(slice.span.task);
      timeline.spans[id] = slice.span;
      for (TaskId from : slice.after) {
        if (index_of(from) >= count || from == slice.span.task) {
          faults_.add("trace-tasks", where + "/args/after",
                      "found " + std::to_string(index_of(from)) +
                          ", expected ids of other tasks, below " + std::to_string(count));
          continue;
        }
        schedule.edges.push_back({from, slice.span.task});
      }
    }
    std::sort(schedule.edges.begin(), schedule.edges.end());
    if (const Nanos makespan = ir::makespan(timeline); makespan != makespan_) {
      faults_.add("trace-value", "/metadata/makespan_ns",
                  "found " + std::to_string(makespan_) + ", but the last slice ends at " +
                      std::to_string(makespan));
    }
  }

  std::string_view file_;
  ir::JsonFaults faults_;
  TimelineFile result_;
  std::vector<Slice> slices_;
  std::int64_t tasks_ = 0;
  Nanos makespan_ = 0;
};

}  // namespace

bool is_timeline_file(std::string_view text) {
  return text.substr(0, text.find("\"traceEvents\"")).find(R"("format": "xpipe.trace")") !=
         std::string_view::npos;
}

ir::Result<TimelineFile> read_timeline(std::string_view text, std::string_view file) {
  return Reader(file).read(text);
}

}  // namespace xpipe::traces
