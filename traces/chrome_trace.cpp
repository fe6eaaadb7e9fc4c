#include "traces/chrome_trace.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <tuple>

#include <nlohmann/json.hpp>

#include "ir/text.h"
#include "traces/arrows.h"
#include "traces/trace_layout.h"

namespace xpipe::traces {

namespace {

using ir::DeviceId;
using ir::index_of;
using ir::Nanos;
using ir::TaskId;
using Json = nlohmann::ordered_json;

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string json_string(std::string_view text) {
  return dump(Json(std::string(text)), -1);
}

/// Every span that cannot be drawn.
std::vector<ir::Diagnostic> misfits(const ir::Schedule& schedule, const ir::Timeline& timeline) {
  std::vector<ir::Diagnostic> faults;
  const auto fault = [&](TaskId id, std::string message) {
    faults.push_back({"timeline", to_text(schedule.task(id)), std::move(message)});
  };
  if (timeline.spans.size() != schedule.tasks.size()) {
    return {{"timeline", "timeline",
             "it has " + std::to_string(timeline.spans.size()) + " spans, the schedule " +
                 std::to_string(schedule.tasks.size()) + " tasks: it is of another schedule"}};
  }
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const TaskId id{static_cast<std::uint32_t>(i)};
    const ir::Span& span = timeline.spans[i];
    if (span.task != id) {
      fault(id, "span " + std::to_string(i) + " is of task " + std::to_string(index_of(span.task)) +
                    ": spans stand in the order of tasks");
    }
    if (span.start < 0 || span.end < span.start) {
      fault(id, "its span is [" + std::to_string(span.start) + ", " + std::to_string(span.end) +
                    ") ns: expected 0 <= start <= end");
    }
  }
  for (const ir::Lane& lane : schedule.lanes) {
    for (std::size_t i = 1; i < lane.order.size(); ++i) {
      const ir::Span& before = timeline.spans[index_of(lane.order[i - 1])];
      const ir::Span& span = timeline.spans[index_of(lane.order[i])];
      if (span.start < before.end) {
        fault(lane.order[i], "starts at " + std::to_string(span.start) + " ns, before " +
                                 to_text(schedule.task(lane.order[i - 1])) +
                                 " on the same lane ends at " + std::to_string(before.end) + " ns");
      }
    }
  }
  return faults;
}

class Writer {
 public:
  Writer(const ir::Schedule& schedule, const ir::Timeline& timeline)
      : schedule_(schedule), timeline_(timeline), makespan_(ir::makespan(timeline)) {
    compute_tid_.resize(schedule.devices);
    for (std::size_t i = 0; i < compute_tid_.size(); ++i) {
      compute_tid_[i] = tid_of(schedule.lanes.size() + i);  // for a device without a compute lane
    }
    for (std::size_t i = schedule.lanes.size(); i-- > 0;) {
      if (schedule.lanes[i].kind == ir::LaneKind::Compute) {
        compute_tid_[index_of(schedule.lanes[i].device)] = tid_of(i);
      }
    }
    out_.reserve(4096 + 280 * schedule.tasks.size());
  }

  std::string write(const TraceInfo& info, const std::vector<CounterSeries>& counters) {
    header(info);
    names();
    slices();
    arrows();
    for (const CounterSeries& series : counters) {
      counter(series);
    }
    out_ += first_ ? "]\n}\n" : "\n  ]\n}\n";
    return std::move(out_);
  }

 private:
  /// HTA finds the rank by `"rank": 0` on a line of its own, ahead of the events; viewers know a
  /// trace by its first bytes `{"`.
  void header(const TraceInfo& info) {
    Json json;
    json["schemaVersion"] = 1;
    json["distributedInfo"] = {{"rank", 0}, {"world_size", 1}};
    json["displayTimeUnit"] = "ns";
    json["baseTimeNanoseconds"] = info.base_time_ns;
    json["traceName"] = info.title;
    Json& meta = json["metadata"];
    meta["format"] = kTraceFormat;
    meta["version"] = kTraceFormatVersion;
    meta["kind"] = timeline_.measured ? "run" : "plan";
    meta["title"] = info.title;
    meta["base_time_ns"] = info.base_time_ns;
    meta["makespan_ns"] = makespan_;
    meta["tasks"] = schedule_.tasks.size();
    meta["policy"] = schedule_.policy;
    meta["options"] = pairs(schedule_.options);
    meta["micro_batches"] = schedule_.micro_batches;
    meta["mini_batches"] = schedule_.mini_batches;
    meta["devices"] = schedule_.devices;
    meta["stages"] = Json::array();
    for (const ir::StageInfo& stage : schedule_.stages) {
      Json json_stage = {{"device", index_of(stage.device())}, {"slots", stage.slots}};
      if (stage.is_replicated()) {
        json_stage["devices"] = Json::array();
        for (const ir::DeviceId device : stage.devices) {
          json_stage["devices"].push_back(index_of(device));
        }
      }
      meta["stages"].push_back(std::move(json_stage));
    }
    meta["lanes"] = Json::array();
    for (std::size_t i = 0; i < schedule_.lanes.size(); ++i) {
      const ir::Lane& lane = schedule_.lanes[i];
      meta["lanes"].push_back({{"tid", tid_of(i)},
                               {"kind", lane_kind_name(lane.kind)},
                               {"device", index_of(lane.device)},
                               {"peer", index_of(lane.peer)}});
    }
    meta["layers"] = info.layers;
    meta["facts"] = pairs(info.facts);
    const std::string text = dump(json, 2);  // "{\n  ... \n}"
    out_ += '{';
    out_.append(text, text.find('"'), text.rfind('\n') - text.find('"'));
    out_ += ",\n  \"traceEvents\": [";
  }

  static Json pairs(const std::vector<std::pair<std::string, std::string>>& pairs) {
    Json json = Json::object();
    for (const auto& [name, value] : pairs) {
      json[name] = value;
    }
    return json;
  }

  void names() {
    for (std::uint32_t d = 0; d < schedule_.devices; ++d) {
      const DeviceId device{static_cast<std::uint16_t>(d)};
      const std::int64_t tid = compute_tid_[d];
      name("process_name", device, tid, "name", json_string("device " + std::to_string(d)));
      name("process_sort_index", device, tid, "sort_index", std::to_string(d));
      name("thread_name", device, tid, "name", json_string("compute"));
      name("thread_sort_index", device, tid, "sort_index", "0");
    }
    for (std::size_t i = 0; i < schedule_.lanes.size(); ++i) {
      const ir::Lane& lane = schedule_.lanes[i];
      if (tid_of(i) == compute_tid_[index_of(lane.device)]) {
        continue;
      }
      std::string text(lane_kind_name(lane.kind));
      if (lane.kind != ir::LaneKind::Compute) {
        text += lane.kind == ir::LaneKind::Send ? " to " : " from ";
        text += std::to_string(index_of(lane.peer));
      }
      name("thread_name", lane.device, tid_of(i), "name", json_string(text));
      name("thread_sort_index", lane.device, tid_of(i), "sort_index", std::to_string(i + 1));
    }
  }

  void name(std::string_view what,
            DeviceId device,
            std::int64_t tid,
            std::string_view key,
            std::string_view value) {
    begin_event('M', device, tid);
    out_ += ",\"name\":\"";
    out_ += what;
    out_ += "\",\"args\":{\"";
    out_ += key;
    out_ += "\":";
    out_ += value;
    out_ += "}}";
  }

  void slices() {
    // The edges into each task, as ranges of one list.
    std::vector<std::pair<TaskId, TaskId>> into;  // (to, from)
    into.reserve(schedule_.edges.size());
    for (const ir::Edge& edge : schedule_.edges) {
      into.emplace_back(edge.to, edge.from);
    }
    std::sort(into.begin(), into.end());
    for (std::size_t i = 0; i < schedule_.lanes.size(); ++i) {
      for (TaskId id : schedule_.lanes[i].order) {
        slice(i, id);
        auto edge = std::lower_bound(into.begin(), into.end(), std::pair(id, TaskId{0}));
        for (char separator = '['; edge != into.end() && edge->first == id; ++edge) {
          out_ += separator == '[' ? ",\"after\":[" : ",";
          number(index_of(edge->second));
          separator = ',';
          if (edge + 1 == into.end() || (edge + 1)->first != id) {
            out_ += ']';
          }
        }
        out_ += "}}";
      }
    }
  }

  /// Up to the args that every task has, left open.
  void slice(std::size_t lane, TaskId id) {
    const ir::Task& task = schedule_.task(id);
    const ir::Span& span = timeline_.spans[index_of(id)];
    begin_event('X', schedule_.lanes[lane].device, tid_of(lane));
    microseconds(",\"ts\":", span.start);
    microseconds(",\"dur\":", span.end - span.start);
    out_ += ",\"name\":";
    out_ += json_string(to_text(task));
    out_ += ",\"cat\":";
    out_ += json_string(kind_name(task.kind()));
    field(",\"args\":{\"task\":", index_of(id));
    field(",\"start_ns\":", span.start);
    field(",\"end_ns\":", span.end);
    for (const auto& [name, value] : facts_of(task)) {
      out_ += ",\"";
      out_ += name;
      field("\":", value);
    }
  }

  /// Viewers tie an arrow to the slice at its time that was written last: so arrows come after all
  /// slices, leave in the last nanosecond of one slice and arrive at the start of the other.
  void arrows() {
    std::int64_t flow = 0;
    for (const Arrow& arrow : visible_arrows(schedule_, timeline_)) {
      ++flow;
      arrow_end('s', flow, arrow.kind, arrow.from, timeline_.spans[index_of(arrow.from)].end - 1);
      arrow_end('f', flow, arrow.kind, arrow.to, timeline_.spans[index_of(arrow.to)].start);
    }
  }

  void arrow_end(char phase, std::int64_t flow, ArrowKind kind, TaskId task, Nanos time) {
    const std::size_t lane = index_of(schedule_.task(task).lane);
    begin_event(phase, schedule_.lanes[lane].device, tid_of(lane));
    microseconds(",\"ts\":", time);
    field(",\"id\":", flow);
    out_ += kind == ArrowKind::Transfer ? R"(,"name":"transfer","cat":"transfer")"
                                        : R"(,"name":"weights","cat":"weights")";
    out_ += phase == 'f' ? R"(,"bp":"e"})" : "}";
  }

  void counter(const CounterSeries& series) {
    const std::string tail =
        ",\"name\":" + json_string(series.name) + ",\"args\":{" + json_string(series.unit) + ":";
    const auto sample = [&](Nanos time, std::int64_t value) {
      begin_event('C', series.device, compute_tid_[index_of(series.device)]);
      microseconds(",\"ts\":", time);
      out_ += tail;
      number(value);
      out_ += "}}";
    };
    std::int64_t last = series.base;
    Nanos time = 0;
    if (series.points.empty() || series.points.front().first > 0) {
      sample(0, last);
    }
    for (std::size_t i = 0; i < series.points.size(); ++i) {
      std::tie(time, last) = series.points[i];
      // Of several values at one time the last one stands.
      if (i + 1 == series.points.size() || series.points[i + 1].first > time) {
        sample(time, last);
      }
    }
    if (time < makespan_) {
      sample(makespan_, last);
    }
  }

  void begin_event(char phase, DeviceId device, std::int64_t tid) {
    out_ += first_ ? "\n    {\"ph\":\"" : ",\n    {\"ph\":\"";
    first_ = false;
    out_ += phase;
    field("\",\"pid\":", pid_of(device));
    field(",\"tid\":", tid);
  }

  void field(std::string_view prefix, std::int64_t value) {
    out_ += prefix;
    number(value);
  }

  void number(std::int64_t value) {
    char buffer[24];
    out_.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
  }

  /// µs with exactly three decimals, never an exponent.
  void microseconds(std::string_view prefix, Nanos time) {
    field(prefix, time / 1000);
    const auto rest = static_cast<int>(time % 1000);
    out_ += '.';
    out_ += static_cast<char>('0' + rest / 100);
    out_ += static_cast<char>('0' + rest / 10 % 10);
    out_ += static_cast<char>('0' + rest % 10);
  }

  const ir::Schedule& schedule_;
  const ir::Timeline& timeline_;
  Nanos makespan_;
  std::vector<std::int64_t> compute_tid_;  ///< by DeviceId
  std::string out_;
  bool first_ = true;
};

}  // namespace

ir::Result<std::string> chrome_trace(const ir::Schedule& schedule,
                                     const ir::Timeline& timeline,
                                     const TraceInfo& info,
                                     const std::vector<CounterSeries>& counters) {
  std::vector<ir::Diagnostic> faults = misfits(schedule, timeline);
  for (const CounterSeries& series : counters) {
    Nanos time = 0;
    for (const auto& [at, value] : series.points) {
      if (at < time || index_of(series.device) >= schedule.devices) {
        faults.push_back({"counter", series.name,
                          "device " + std::to_string(index_of(series.device)) + " of " +
                              std::to_string(schedule.devices) + ", time " + std::to_string(at) +
                              " ns after " + std::to_string(time) +
                              " ns: expected one of the devices, and times that do not fall"});
        break;
      }
      time = at;
    }
  }
  if (!faults.empty()) {
    return ir::Error{ir::ErrorKind::Internal, std::move(faults)};
  }
  return Writer(schedule, timeline).write(info, counters);
}

}  // namespace xpipe::traces
