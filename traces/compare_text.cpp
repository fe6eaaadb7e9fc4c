#include "traces/compare_text.h"

#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace xpipe::traces {

namespace {

using ir::index_of;
using ir::Nanos;
using Json = nlohmann::ordered_json;

std::string_view kind_of(bool measured) {
  return measured ? "run" : "plan";
}

std::string in_ms(Nanos time) {
  return fmt::format("{:.3f}", static_cast<double>(time) / 1e6);
}

std::string in_percent(double part) {
  return fmt::format("{:.1f} %", 100 * part);
}

std::string ratio_text(const std::optional<double>& ratio) {
  return ratio ? fmt::format("{:.3f}", *ratio) : "-";
}

void times_row(std::string& out, std::string_view what, const PlannedMeasured& times) {
  fmt::format_to(std::back_inserter(out), "{:<24}{:>8}{:>14}{:>14}{:>9}\n", what, times.tasks,
                 in_ms(times.planned), in_ms(times.measured), ratio_text(times.ratio()));
}

void times_head(std::string& out, std::string_view what) {
  fmt::format_to(std::back_inserter(out), "\n{:<24}{:>8}{:>14}{:>14}{:>9}\n", what, "tasks",
                 "planned ms", "measured ms", "ratio");
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
  std::string out;
  const auto line = std::back_inserter(out);
  fmt::format_to(line, "{}: {} tasks; {} {} ms, {} {} ms, ratio {}\n", comparison.policy,
                 comparison.tasks, kind_of(comparison.plan_measured),
                 in_ms(comparison.plan_makespan), kind_of(comparison.run_measured),
                 in_ms(comparison.run_makespan), ratio_text(comparison.makespan_ratio));
  if (comparison.median_error && comparison.worst_error) {
    fmt::format_to(line, "error of a task's time: median {}, worst {}\n",
                   in_percent(*comparison.median_error), in_percent(*comparison.worst_error));
  }
  times_head(out, "kind");
  for (const KindComparison& kind : comparison.by_kind) {
    times_row(out, kind_name(kind.kind), kind.times);
  }
  times_head(out, "stage");
  for (const StageComparison& stage : comparison.by_stage) {
    for (const KindComparison& kind : stage.by_kind) {
      times_row(out, fmt::format("{:<4}{}", index_of(stage.stage), kind_name(kind.kind)),
                kind.times);
    }
  }
  fmt::format_to(line, "\n{:<24}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "time lost on device, ms",
                 "compute", "transfer", "wait", "engine", "total");
  for (std::size_t d = 0; d < comparison.lost.size(); ++d) {
    const DeviceTime& lost = comparison.lost[d];
    fmt::format_to(line, "{:<24}{:>12}{:>12}{:>12}{:>12}{:>12}\n", d, in_ms(lost.compute),
                   in_ms(lost.transfer), in_ms(lost.wait), in_ms(lost.engine),
                   in_ms(lost.compute + lost.transfer + lost.wait + lost.engine));
  }
  if (!comparison.worst_tasks.empty()) {
    fmt::format_to(line, "\n{:<24}{:>8}{:>14}{:>14}{:>9}\n", "farthest from the plan", "task",
                   "planned ms", "measured ms", "error");
    for (const TaskComparison& task : comparison.worst_tasks) {
      fmt::format_to(line, "{:<24}{:>8}{:>14}{:>14}{:>9}\n", task.text, index_of(task.task),
                     in_ms(task.planned), in_ms(task.measured), in_percent(task.error));
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
