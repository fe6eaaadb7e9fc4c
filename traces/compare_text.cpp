#include "traces/compare_text.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace xpipe::traces {

namespace {

using ir::index_of;
using ir::Nanos;
using Json = nlohmann::ordered_json;

std::string_view kind_of(bool measured) {
  return measured ? "run" : "plan";
}

std::string fixed(double value, int decimals) {
  char buffer[340];  // the largest double has 309 digits before the point
  return {buffer,
          std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed, decimals)
              .ptr};
}

std::string in_ms(Nanos time) {
  return fixed(static_cast<double>(time) / 1e6, 3);
}

std::string in_percent(double part) {
  return fixed(100 * part, 1) + " %";
}

std::string ratio_text(const std::optional<double>& ratio) {
  return ratio ? fixed(*ratio, 3) : "-";
}

constexpr std::size_t kFirstColumn = 30;

/// A line of a table: the first cell to the left, the others to the right of their columns.
void line(std::string& out,
          std::string first,
          const std::vector<std::pair<std::string, std::size_t>>& cells) {
  first.resize(std::max(first.size(), kFirstColumn), ' ');
  out += first;
  for (const auto& [text, width] : cells) {
    out.append(width > text.size() ? width - text.size() : 1, ' ');
    out += text;
  }
  out += '\n';
}

void times_row(std::string& out, std::string what, const PlannedMeasured& times) {
  line(out, std::move(what),
       {{std::to_string(times.tasks), 8},
        {in_ms(times.planned), 14},
        {in_ms(times.measured), 14},
        {ratio_text(times.ratio()), 9}});
}

void times_head(std::string& out, std::string what) {
  out += '\n';
  line(out, std::move(what), {{"tasks", 8}, {"planned ms", 14}, {"measured ms", 14}, {"ratio", 9}});
}

Json times_json(const PlannedMeasured& times) {
  Json json = {
      {"tasks", times.tasks}, {"planned_ns", times.planned}, {"measured_ns", times.measured}};
  if (const std::optional<double> ratio = times.ratio()) {
    json["ratio"] = *ratio;
  }
  return json;
}

Json kinds_json(const std::vector<KindComparison>& kinds) {
  Json list = Json::array();
  for (const KindComparison& kind : kinds) {
    Json row = {{"kind", kind_name(kind.kind)}};
    row.update(times_json(kind.times));
    list.push_back(std::move(row));
  }
  return list;
}

}  // namespace

std::string to_table(const Comparison& comparison) {
  std::string out = comparison.policy + ": " + std::to_string(comparison.tasks) + " tasks; ";
  out.append(kind_of(comparison.plan_measured)).append(" ").append(in_ms(comparison.plan_makespan));
  out.append(" ms, ").append(kind_of(comparison.run_measured)).append(" ");
  out.append(in_ms(comparison.run_makespan)).append(" ms, ratio ");
  out.append(ratio_text(comparison.makespan_ratio)).append("\n");
  if (comparison.median_error && comparison.worst_error) {
    out += "error of a task's time: median " + in_percent(*comparison.median_error) + ", worst " +
           in_percent(*comparison.worst_error);
    if (comparison.median_priced_error) {
      out += "; median of those that the plan gives time " +
             in_percent(*comparison.median_priced_error);
    }
    out += "\n";
  }
  times_head(out, "kind");
  for (const KindComparison& kind : comparison.by_kind) {
    times_row(out, std::string(kind_name(kind.kind)), kind.times);
  }
  times_head(out, "stage");
  for (const StageComparison& stage : comparison.by_stage) {
    std::string number = std::to_string(index_of(stage.stage));
    number.resize(std::max<std::size_t>(number.size() + 1, 4), ' ');
    for (const KindComparison& kind : stage.by_kind) {
      times_row(out, number + std::string(kind_name(kind.kind)), kind.times);
    }
  }
  out += '\n';
  line(out, "time lost on device, ms",
       {{"compute", 12}, {"transfer", 12}, {"wait", 12}, {"engine", 12}, {"total", 12}});
  for (std::size_t d = 0; d < comparison.lost.size(); ++d) {
    const DeviceTime& lost = comparison.lost[d];
    line(out, std::to_string(d),
         {{in_ms(lost.compute), 12},
          {in_ms(lost.transfer), 12},
          {in_ms(lost.wait), 12},
          {in_ms(lost.engine), 12},
          {in_ms(lost.compute + lost.transfer + lost.wait + lost.engine), 12}});
  }
  if (!comparison.worst_tasks.empty()) {
    out += '\n';
    line(out, "farthest from the plan",
         {{"task", 8}, {"planned ms", 14}, {"measured ms", 14}, {"error", 9}});
    for (const TaskComparison& task : comparison.worst_tasks) {
      line(out, task.text,
           {{std::to_string(index_of(task.task)), 8},
            {in_ms(task.planned), 14},
            {in_ms(task.measured), 14},
            {in_percent(task.error), 9}});
    }
  }
  return out;
}

std::string to_json(const Comparison& comparison) {
  Json json;
  json["format"] = "xpipe.compare";
  json["version"] = 1;
  json["policy"] = comparison.policy;
  json["plan"] = {{"kind", kind_of(comparison.plan_measured)},
                  {"makespan_ns", comparison.plan_makespan}};
  json["run"] = {{"kind", kind_of(comparison.run_measured)},
                 {"makespan_ns", comparison.run_makespan}};
  json["tasks"] = comparison.tasks;
  const auto optional = [&json](const char* name, const std::optional<double>& value) {
    if (value) {
      json[name] = *value;
    }
  };
  optional("makespan_ratio", comparison.makespan_ratio);
  optional("median_error", comparison.median_error);
  optional("worst_error", comparison.worst_error);
  optional("median_priced_error", comparison.median_priced_error);
  json["by_kind"] = kinds_json(comparison.by_kind);
  json["by_stage"] = Json::array();
  for (const StageComparison& stage : comparison.by_stage) {
    Json row = {{"stage", index_of(stage.stage)}};
    row.update(times_json(stage.times));
    row["by_kind"] = kinds_json(stage.by_kind);
    json["by_stage"].push_back(std::move(row));
  }
  json["lost"] = Json::array();
  for (std::size_t d = 0; d < comparison.lost.size(); ++d) {
    const DeviceTime& lost = comparison.lost[d];
    for (const auto& [kind, ns] :
         {std::pair("compute", lost.compute), std::pair("transfer", lost.transfer),
          std::pair("wait", lost.wait), std::pair("engine", lost.engine)}) {
      json["lost"].push_back({{"device", d}, {"kind", kind}, {"ns", ns}});
    }
  }
  json["worst_tasks"] = Json::array();
  for (const TaskComparison& task : comparison.worst_tasks) {
    json["worst_tasks"].push_back({{"task", index_of(task.task)},
                                   {"text", task.text},
                                   {"planned_ns", task.planned},
                                   {"measured_ns", task.measured},
                                   {"error", task.error}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace xpipe::traces
