#include "traces/timeline_file.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ir/text.h"
#include "traces/json_fields.h"
#include "traces/trace_json.h"
#include "traces/trace_layout.h"

namespace xpipe::traces {

namespace {

using ir::index_of;
using ir::Nanos;
using ir::TaskId;
using Kind = JsonValue::Kind;

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
  explicit Reader(std::string_view file) : faults_{std::string(file), {}} {}

  ir::Result<TimelineFile> read(std::string_view text) {
    const auto document = read_trace_json(
        text, faults_.file,
        [this](std::size_t index, const JsonValue& event) { this->event(index, event); });
    if (!document.ok()) {
      return document.error();
    }
    if (document.value().bare_array || !document.value().has_events) {
      return ir::make_error(ir::ErrorKind::BadInput, "trace-format", place(faults_.file, "/"),
                            "expected one of our traces: an object with `metadata` and "
                            "`traceEvents`");
    }
    header(document.value().header);
    if (faults_.faults.empty()) {
      assemble();
    }
    if (!faults_.faults.empty()) {
      return ir::Error{ir::ErrorKind::BadInput, std::move(faults_.faults)};
    }
    return std::move(result_);
  }

 private:
  static std::string path_of(std::size_t event) { return "/traceEvents/" + std::to_string(event); }

  void event(std::size_t index, const JsonValue& event) {
    const JsonValue* phase = event.find("ph");
    if (phase == nullptr || !phase->is(Kind::String)) {
      faults_.add("trace-missing-key", path_of(index) + "/ph",
                  "an event of our traces has a `ph`: X, M, C, s or f");
    } else if (phase->text == "X") {
      slice(index, event);
    } else if (phase->text != "M" && phase->text != "C" && phase->text != "s" &&
               phase->text != "f") {
      faults_.add("trace-value", path_of(index) + "/ph",
                  "found " + shown(*phase) + ", our traces have only X, M, C, s and f");
    }
  }

  void slice(std::size_t index, const JsonValue& event) {
    JsonFields fields(event, path_of(index), faults_);
    Slice slice{.event = index, .task = {}, .span = {}, .after = {}};
    fields.text("ph");
    slice.pid = fields.whole("pid", 1, kMax16 + 1);
    slice.tid = fields.whole("tid", 1, kMax32);
    const JsonValue* ts = fields.member("ts", Kind::Number);
    const JsonValue* dur = fields.member("dur", Kind::Number);
    const std::string name = fields.text("name");
    const std::string category = fields.text("cat");
    const JsonValue* args = fields.member("args", Kind::Object);
    fields.finish();
    if (args == nullptr || ts == nullptr || dur == nullptr) {
      return;
    }
    const auto task = ir::task_from_text(name);
    if (!task.ok()) {
      faults_.add("trace-value", fields.path_of("name"),
                  "not the text of a task: " + task.error().diagnostics.front().message);
      return;
    }
    slice.task = task.value();
    if (category != kind_name(slice.task.kind())) {
      faults_.add("trace-value", fields.path_of("cat"),
                  "found \"" + category + "\", expected \"" +
                      std::string(kind_name(slice.task.kind())) + "\" for " + name);
    }
    arguments(*args, fields.path_of("args"), slice);
    time(*ts, fields.path_of("ts"), slice.span.start);
    time(*dur, fields.path_of("dur"), slice.span.end - slice.span.start);
    slices_.push_back(std::move(slice));
  }

  void arguments(const JsonValue& args, const std::string& path, Slice& slice) {
    JsonFields fields(args, path, faults_);
    slice.span.task = TaskId(static_cast<std::uint32_t>(fields.whole("task", 0, kMax32)));
    slice.span.start = fields.whole("start_ns", 0, kMaxTime);
    slice.span.end = fields.whole("end_ns", slice.span.start, kMaxTime);
    for (const auto& [name, value] : facts_of(slice.task)) {
      fields.whole(name, value, value);
    }
    if (const JsonValue* after = fields.optional_member("after", Kind::Array)) {
      for (std::size_t i = 0; i < after->items.size(); ++i) {
        const auto id = whole_number(after->items[i]);
        if (!id || *id < 0 || *id > kMax32) {
          faults_.add("trace-value", fields.path_of("after/") + std::to_string(i),
                      "found " + shown(after->items[i]) + ", expected the id of a task");
          continue;
        }
        slice.after.push_back(TaskId{static_cast<std::uint32_t>(*id)});
      }
    }
    fields.finish();
  }

  /// The time in µs must be the one in ns.
  void time(const JsonValue& found, const std::string& path, Nanos expected) {
    const auto nanos = nanos_from_us(found);
    if (!nanos || *nanos != expected) {
      faults_.add("trace-value", path,
                  "found " + shown(found) + " us, but start_ns and end_ns of its args say " +
                      std::to_string(expected) + " ns");
    }
  }

  void header(const JsonValue& header) {
    JsonFields top(header, "", faults_);
    top.whole("schemaVersion", 1, 1);
    top.member("distributedInfo", Kind::Object);
    top.text("displayTimeUnit");
    top.whole("baseTimeNanoseconds", std::numeric_limits<Nanos>::min(), kMaxTime);
    top.text("traceName");
    const JsonValue* metadata = top.member("metadata", Kind::Object);
    top.finish();
    if (metadata == nullptr) {
      return;
    }
    JsonFields meta(*metadata, "/metadata", faults_);
    expect(meta, "format", {kTraceFormat});
    meta.whole("version", kTraceFormatVersion, kTraceFormatVersion);
    result_.timeline.measured = expect(meta, "kind", {"plan", "run"}) == "run";
    result_.info.title = meta.text("title");
    result_.info.base_time_ns =
        meta.whole("base_time_ns", std::numeric_limits<Nanos>::min(), kMaxTime);
    makespan_ = meta.whole("makespan_ns", 0, kMaxTime);
    tasks_ = meta.whole("tasks", 0, kMax32);
    ir::Schedule& schedule = result_.schedule;
    schedule.policy = meta.text("policy");
    pairs(meta, "options", schedule.options);
    schedule.micro_batches = static_cast<std::uint32_t>(meta.whole("micro_batches", 1, kMax32));
    schedule.mini_batches = static_cast<std::uint32_t>(meta.whole("mini_batches", 0, kMax32));
    schedule.devices = static_cast<std::uint32_t>(meta.whole("devices", 0, kMax16 + 1));
    each(meta, "stages", [&](JsonFields& stage) {
      ir::StageInfo info;
      info.devices = {device(stage, "device")};
      replicas(stage, info.devices);
      info.slots = static_cast<std::uint16_t>(stage.whole("slots", 1, kMax16));
      schedule.stages.push_back(std::move(info));
    });
    each(meta, "lanes", [&](JsonFields& lane) {
      const std::int64_t tid = tid_of(schedule.lanes.size());
      lane.whole("tid", tid, tid);
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
    meta.finish();
  }

  /// The devices of a replicated stage, the first one's included.
  void replicas(JsonFields& stage, std::vector<ir::DeviceId>& devices) {
    const JsonValue* list = stage.optional_member("devices", Kind::Array);
    if (list == nullptr) {
      return;
    }
    devices.clear();
    for (const JsonValue& item : list->items) {
      const auto number = whole_number(item);
      if (!number || *number < 0 ||
          *number >= std::max<std::int64_t>(result_.schedule.devices, 1)) {
        faults_.add("trace-value", stage.path_of("devices"),
                    "found " + shown(item) + ", expected a device of this trace");
        continue;
      }
      devices.push_back(ir::DeviceId(static_cast<std::uint16_t>(*number)));
    }
    if (devices.empty()) {
      faults_.add("trace-value", stage.path_of("devices"), "expected a device for each replica");
      devices = {ir::DeviceId{}};
    }
  }

  ir::DeviceId device(JsonFields& fields, std::string_view name) {
    const auto devices = std::max<std::int64_t>(result_.schedule.devices, 1);
    return ir::DeviceId(static_cast<std::uint16_t>(fields.whole(name, 0, devices - 1)));
  }

  /// A string that is one of `words`.
  static std::string expect(JsonFields& fields,
                            std::string_view name,
                            const std::vector<std::string_view>& words) {
    const JsonValue* found = fields.member(name, Kind::String);
    if (found == nullptr) {
      return "";
    }
    if (std::find(words.begin(), words.end(), found->text) == words.end()) {
      std::string expected;
      for (std::string_view word : words) {
        expected += (expected.empty() ? "\"" : " or \"") + std::string(word) + "\"";
      }
      fields.faults().add("trace-value", fields.path_of(name),
                          "found " + shown(*found) + ", expected " + expected);
    }
    return found->text;
  }

  static void pairs(JsonFields& fields,
                    std::string_view name,
                    std::vector<std::pair<std::string, std::string>>& out) {
    if (const JsonValue* found = fields.member(name, Kind::Object)) {
      JsonFields object(*found, fields.path_of(name), fields.faults());
      for (const auto& [key, value] : found->members) {
        out.emplace_back(key, object.text(key));
      }
    }
  }

  template <typename Read>
  void each(JsonFields& fields, std::string_view name, Read&& read) {
    if (const JsonValue* found = fields.member(name, Kind::Array)) {
      for (std::size_t i = 0; i < found->items.size(); ++i) {
        JsonFields item(found->items[i], fields.path_of(name) + "/" + std::to_string(i), faults_);
        read(item);
        item.finish();
      }
    }
  }

  void layers(JsonFields& meta) {
    const JsonValue* found = meta.member("layers", Kind::Array);
    if (found == nullptr) {
      return;
    }
    for (const JsonValue& stage : found->items) {
      std::vector<std::string>& names = result_.info.layers.emplace_back();
      bool good = stage.is(Kind::Array);
      for (const JsonValue& name : stage.items) {
        good = good && name.is(Kind::String);
        names.push_back(name.text);
      }
      if (!good) {
        faults_.add("trace-type", meta.path_of("layers"), "expected a list of names per stage");
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

  FaultList faults_;
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
