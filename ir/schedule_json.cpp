#include "ir/schedule_json.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "ir/strict_json.h"
#include "ir/text.h"

namespace xpipe::ir {

namespace {

constexpr std::string_view kScheduleFormat = "xpipe.schedule";
constexpr std::size_t kIdsPerLine = 16;

std::string_view lane_kind_name(LaneKind kind) {
  switch (kind) {
    case LaneKind::Compute:
      return "compute";
    case LaneKind::Send:
      return "send";
    case LaneKind::Receive:
      return "receive";
  }
  return "";
}

/// Joins what `append(i)` writes for i < count with commas, `per_line` to a line.
template <typename Append>
void append_list(std::string& out, std::size_t count, std::size_t per_line, Append&& append) {
  out += '[';
  for (std::size_t i = 0; i < count; ++i) {
    out += i == 0 ? "" : ",";
    out += i % per_line == 0 && count > per_line ? "\n  " : i == 0 ? "" : " ";
    append(i);
  }
  out += ']';
}

class ScheduleJsonReader {
 public:
  explicit ScheduleJsonReader(std::string_view file) : faults_(file) {}

  Result<Schedule> read(const JsonValue& document) {
    JsonObject root(document, "", faults_);
    root.expect_format(kScheduleFormat, kScheduleFormatVersion);
    schedule_.policy = root.string("policy", Need::Required).value_or("");
    if (const JsonValue::Object* options = root.object("options", Need::Required)) {
      read_options(*options);
    }
    schedule_.micro_batches = count(root, "micro_batches");
    schedule_.mini_batches = count(root, "mini_batches");
    schedule_.devices = count(root, "devices");
    if (const JsonValue::Array* stages = root.array("stages", Need::Required)) {
      read_stages(*stages);
    }
    if (const JsonValue::Array* tasks = root.array("tasks", Need::Required)) {
      read_tasks(*tasks);
    }
    if (const JsonValue::Array* lanes = root.array("lanes", Need::Required)) {
      read_lanes(*lanes);
    }
    if (const JsonValue::Array* edges = root.array("edges", Need::Required)) {
      read_edges(*edges);
    }
    root.refuse_unknown();
    if (!faults_.empty()) {
      return std::move(faults_).error();
    }
    return std::move(schedule_);
  }

 private:
  static std::uint32_t count(JsonObject& object, std::string_view key) {
    return static_cast<std::uint32_t>(
        object.integer(key, 0, std::numeric_limits<std::uint32_t>::max(), Need::Required)
            .value_or(0));
  }

  static std::uint16_t small(JsonObject& object, std::string_view key, Need need) {
    return static_cast<std::uint16_t>(
        object.integer(key, 0, std::numeric_limits<std::uint16_t>::max(), need).value_or(0));
  }

  void read_options(const JsonValue::Object& options) {
    for (const auto& [name, value] : options) {
      if (const auto* text = std::get_if<std::string>(&value.value)) {
        schedule_.options.emplace_back(name, *text);
      } else {
        faults_.add("json-type", "/options/" + name, "expected a string, found " + value.shown());
      }
    }
  }

  void read_stages(const JsonValue::Array& stages) {
    for (std::size_t k = 0; k < stages.size(); ++k) {
      JsonObject stage(stages[k], "/stages/" + std::to_string(k), faults_);
      StageInfo info;
      if (const JsonValue::Array* devices = stage.array("devices", Need::Optional)) {
        info.devices = read_devices(*devices, stage.path_of("devices"));
        if (stage.get("device", Need::Optional) != nullptr) {
          stage.fault("json-range", "devices",
                      "stands beside \"device\": expected \"device\", or \"devices\" of replicas");
        }
      } else {
        info.devices = {DeviceId{small(stage, "device", Need::Required)}};
      }
      info.slots = small(stage, "slots", Need::Required);
      schedule_.stages.push_back(std::move(info));
      stage.refuse_unknown();
    }
  }

  std::vector<DeviceId> read_devices(const JsonValue::Array& values, const std::string& path) {
    std::vector<DeviceId> devices;
    for (std::size_t r = 0; r < values.size(); ++r) {
      const auto* number = std::get_if<std::int64_t>(&values[r].value);
      if (number == nullptr || *number < 0 || *number > std::numeric_limits<std::uint16_t>::max()) {
        faults_.add(number == nullptr ? "json-type" : "json-range", path + "/" + std::to_string(r),
                    "expected a device from 0 to " +
                        std::to_string(std::numeric_limits<std::uint16_t>::max()) + ", found " +
                        values[r].shown());
        continue;
      }
      devices.push_back(DeviceId{static_cast<std::uint16_t>(*number)});
    }
    if (values.empty()) {
      faults_.add("json-range", path, "expected the device of each replica, found an empty array");
    }
    return devices;
  }

  void read_tasks(const JsonValue::Array& tasks) {
    schedule_.tasks.reserve(tasks.size());
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const auto* token = std::get_if<std::string>(&tasks[i].value);
      if (token == nullptr) {
        faults_.add("json-type", "/tasks/" + std::to_string(i),
                    "expected a task's text form, found " + tasks[i].shown());
        schedule_.tasks.emplace_back();
        continue;
      }
      Result<Task> task = task_from_text(*token);
      if (!task.ok()) {
        const Diagnostic& problem = task.error().diagnostics.front();
        faults_.add(problem.code, "/tasks/" + std::to_string(i),
                    problem.where + ": " + problem.message);
      }
      schedule_.tasks.push_back(task.ok() ? task.value() : Task{});
    }
    // A task says its lane; one that no lane lists says a lane that does not exist.
    for (Task& task : schedule_.tasks) {
      task.lane = LaneId{std::numeric_limits<std::uint32_t>::max()};
    }
  }

  std::optional<TaskId> task_id(const JsonValue& value, const std::string& path) {
    const auto* number = std::get_if<std::int64_t>(&value.value);
    if (number == nullptr || *number < 0 ||
        *number >= static_cast<std::int64_t>(schedule_.tasks.size())) {
      faults_.add(number == nullptr ? "json-type" : "json-range", path,
                  "expected a task from 0 to below " + std::to_string(schedule_.tasks.size()) +
                      ", found " + value.shown());
      return std::nullopt;
    }
    return TaskId{static_cast<std::uint32_t>(*number)};
  }

  void read_lanes(const JsonValue::Array& lanes) {
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      const std::string path = "/lanes/" + std::to_string(l);
      JsonObject object(lanes[l], path, faults_);
      Lane lane;
      const std::optional<std::string> kind = object.string("kind", Need::Required);
      if (kind == "send") {
        lane.kind = LaneKind::Send;
      } else if (kind == "receive") {
        lane.kind = LaneKind::Receive;
      } else if (kind && *kind != "compute") {
        object.fault("json-range", "kind",
                     "expected \"compute\", \"send\" or \"receive\", found " + json_quoted(*kind));
      }
      lane.device = DeviceId{small(object, "device", Need::Required)};
      if (lane.kind == LaneKind::Compute) {
        lane.peer = lane.device;
      } else {
        lane.peer = DeviceId{small(object, "peer", Need::Required)};
      }
      if (const JsonValue::Array* tasks = object.array("tasks", Need::Required)) {
        for (std::size_t i = 0; i < tasks->size(); ++i) {
          if (const auto id = task_id((*tasks)[i], path + "/tasks/" + std::to_string(i))) {
            lane.order.push_back(*id);
            schedule_.tasks[index_of(*id)].lane = LaneId{static_cast<std::uint32_t>(l)};
          }
        }
      }
      object.refuse_unknown();
      schedule_.lanes.push_back(std::move(lane));
    }
  }

  void read_edges(const JsonValue::Array& edges) {
    schedule_.edges.reserve(edges.size());
    for (std::size_t i = 0; i < edges.size(); ++i) {
      const std::string path = "/edges/" + std::to_string(i);
      const auto* ends = std::get_if<JsonValue::Array>(&edges[i].value);
      if (ends == nullptr || ends->size() != 2) {
        faults_.add("json-type", path,
                    "expected [from, to], found " +
                        (ends == nullptr ? edges[i].shown()
                                         : "an array of " + std::to_string(ends->size())));
        continue;
      }
      const auto from = task_id((*ends)[0], path + "/0");
      const auto to = task_id((*ends)[1], path + "/1");
      if (from && to) {
        schedule_.edges.push_back({*from, *to});
      }
    }
  }

  JsonFaults faults_;
  Schedule schedule_;
};

}  // namespace

std::string schedule_to_json(const Schedule& schedule) {
  std::string out = "{\"format\": " + json_quoted(kScheduleFormat) +
                    ", \"version\": " + std::to_string(kScheduleFormatVersion) +
                    ",\n \"policy\": " + json_quoted(schedule.policy) + ", \"options\": {";
  for (std::size_t i = 0; i < schedule.options.size(); ++i) {
    const auto& [name, value] = schedule.options[i];
    out += (i == 0 ? "" : ", ") + json_quoted(name) + ": " + json_quoted(value);
  }
  out += "},\n \"micro_batches\": " + std::to_string(schedule.micro_batches) +
         ", \"mini_batches\": " + std::to_string(schedule.mini_batches) +
         ", \"devices\": " + std::to_string(schedule.devices) + ",\n \"stages\": ";
  append_list(out, schedule.stages.size(), 1, [&](std::size_t k) {
    const StageInfo& stage = schedule.stages[k];
    const auto device = [&](std::size_t r) { out += std::to_string(index_of(stage.devices[r])); };
    if (stage.is_replicated()) {
      out += "{\"devices\": ";
      append_list(out, stage.devices.size(), stage.devices.size(), device);
    } else {
      out += "{\"device\": ";
      device(0);
    }
    out += ", \"slots\": " + std::to_string(stage.slots) + "}";
  });
  out += ",\n \"tasks\": ";
  append_list(out, schedule.tasks.size(), kIdsPerLine / 2,
              [&](std::size_t i) { out += "\"" + to_text(schedule.tasks[i]) + "\""; });
  out += ",\n \"lanes\": ";
  append_list(out, schedule.lanes.size(), 1, [&](std::size_t l) {
    const Lane& lane = schedule.lanes[l];
    out += "{\"kind\": " + json_quoted(lane_kind_name(lane.kind)) +
           ", \"device\": " + std::to_string(index_of(lane.device));
    if (lane.kind != LaneKind::Compute) {
      out += ", \"peer\": " + std::to_string(index_of(lane.peer));
    }
    out += ", \"tasks\": ";
    append_list(out, lane.order.size(), kIdsPerLine,
                [&](std::size_t i) { out += std::to_string(index_of(lane.order[i])); });
    out += "}";
  });
  out += ",\n \"edges\": ";
  append_list(out, schedule.edges.size(), kIdsPerLine / 2, [&](std::size_t i) {
    const Edge& edge = schedule.edges[i];
    out +=
        "[" + std::to_string(index_of(edge.from)) + ", " + std::to_string(index_of(edge.to)) + "]";
  });
  out += "}\n";
  return out;
}

Result<Schedule> schedule_from_json(std::string_view text, std::string_view file) {
  const Result<JsonValue> document = parse_json(text, file);
  if (!document.ok()) {
    return document.error();
  }
  return ScheduleJsonReader(file).read(document.value());
}

}  // namespace xpipe::ir
