#include "app/set_up_evaluator.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "app/arguments.h"
#include "app/exit_status.h"
#include <nlohmann/json.hpp>

#include "simulator/memory.h"
#include "simulator/memory_limit.h"
#include "simulator/metrics.h"
#include "simulator/staleness.h"

namespace xpipe::app {

namespace {

using Json = nlohmann::ordered_json;

/// "4" and "12.5" are numbers, "gpipe" is a text.
Json value_json(const std::string& text) {
  const char* end = text.data() + text.size();
  std::int64_t whole = 0;
  if (const auto [stop, error] = std::from_chars(text.data(), end, whole);
      error == std::errc{} && stop == end) {
    return whole;
  }
  double real = 0.0;
  if (const auto [stop, error] = std::from_chars(text.data(), end, real);
      error == std::errc{} && stop == end && std::isfinite(real)) {
    return real;
  }
  return text;
}

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Options that say which schedule, not on what it runs.
bool is_of_the_run(const std::string& option) {
  return option == "--policy" || option == "--micro-batches" || option == "--mini-batches" ||
         option == "--set";
}

}  // namespace

std::string record_head(const SweepAxes& axes, std::uint64_t i) {
  Json values = Json::object();
  const std::vector<std::size_t> at = axes.values_of(i);
  for (std::size_t a = 0; a < at.size(); ++a) {
    const SweepAxis& axis = axes.axes()[a];
    if (axis.values.size() > 1) {
      values[axis.key] = value_json(axis.shown(at[a]));
    }
  }
  std::string head = line_of({{"kind", "set-up"}, {"set_up", i}, {"axes", std::move(values)}});
  head.pop_back();
  return head;
}

std::string SetUpEvaluator::record(std::uint64_t i) {
  const ir::Result<RunSummary> summary = evaluate(i);
  Json json;
  if (summary.ok()) {
    json = to_json(summary.value());
  } else {
    const ir::Error& error = summary.error();
    Json faults = Json::array();
    for (const ir::Diagnostic& fault : error.diagnostics) {
      faults.push_back({{"code", fault.code}, {"where", fault.where}, {"message", fault.message}});
    }
    json["error"] = {{"status", exit_status_of(error.kind)},
                     {"code", error.diagnostics.front().code},
                     {"faults", std::move(faults)}};
  }
  return record_head(axes_, i) + "," + line_of(json).substr(1) + "\n";
}

ir::Result<RunSummary> SetUpEvaluator::evaluate(std::uint64_t i) {
  const std::vector<std::size_t> values = axes_.values_of(i);
  std::vector<std::string> words;
  for (std::size_t a = 0; a < values.size(); ++a) {
    words.push_back(axes_.axes()[a].option);
    words.push_back(axes_.axes()[a].values[values[a]]);
  }
  const ir::Result<SimulateArguments> arguments = parser_.parse(std::move(words));
  if (!arguments.ok()) {
    return arguments.error();
  }
  if (ir::Status status = check_combination(arguments.value()); !status.ok()) {
    return status.error();
  }
  const ir::Result<RunRequest> request =
      run_of(arguments.value(), inputs_.policies(), arguments.value().policies);
  if (!request.ok()) {
    return request.error();
  }
  if (ir::Status status = set_workload(values, arguments.value().workload); !status.ok()) {
    return status.error();
  }
  const Workload& workload = workload_->value();
  const scheduler::Policy& policy = *request.value().policy;
  const ir::Result<scheduler::StagedModel> model = staged_model(
      workload, request.value().micro_batches,
      {.whole_mini_batch = policy.whole_mini_batch, .extrapolation = policy.extrapolation});
  if (!model.ok()) {
    return model.error();
  }
  set_compiled(request.value(), model.value().graph, workload.passes);
  const scheduler::CostModel& costs = model.value().costs;
  const ir::Result<simulator::LongRun> replayed =
      compiled_->replay(costs, !arguments.value().replay_all);
  if (!replayed.ok()) {
    return replayed.error();
  }
  const simulator::LongRun& run = replayed.value();
  ir::Bytes peak_memory = 0;
  const std::vector<simulator::DeviceMemory> memory = simulator::memory_over_time(
      run.base.schedule, run.base.timeline, costs, simulator::MemoryCurve::Drop);
  if (ir::Status fits = simulator::check_memory(run.base.schedule, memory,
                                                simulator::memory_limits(workload.cluster));
      !fits.ok()) {
    return fits.error();
  }
  for (const simulator::DeviceMemory& device : memory) {
    peak_memory = std::max(peak_memory, device.peak);
  }
  if (staleness_of_ != run.base.schedule.mini_batches) {
    staleness_ = summarize(simulator::measure_staleness(run.base.schedule));
    staleness_of_ = run.base.schedule.mini_batches;
  }
  return summarize(workload, run, request.value().micro_batches, measure_run(run), peak_memory,
                   staleness_);
}

ir::Status SetUpEvaluator::set_workload(const std::vector<std::size_t>& values,
                                        const WorkloadArguments& arguments) {
  bool is_the_same = workload_.has_value();
  for (std::size_t a = 0; is_the_same && a < values.size(); ++a) {
    is_the_same = values[a] == workload_values_[a] || is_of_the_run(axes_.axes()[a].option);
  }
  if (!is_the_same) {
    workload_ = make_workload(arguments, inputs_.files_of(arguments), nullptr);
    workload_values_ = values;
  }
  return workload_->status();
}

void SetUpEvaluator::set_compiled(const RunRequest& request,
                                  const scheduler::StageGraph& graph,
                                  const scheduler::Passes& passes) {
  if (!compiled_.has_value() || !compiled_->is_of(request, graph, passes)) {
    compiled_.emplace(request, graph, passes);
    compiled_->keep_all();
    staleness_of_.reset();
  }
}

}  // namespace xpipe::app
