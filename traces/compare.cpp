#include "traces/compare.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include "ir/text.h"

namespace xpipe::traces {

namespace {

using ir::index_of;
using ir::Nanos;
using ir::TaskId;
using ir::TaskKind;

constexpr std::size_t kNamedDifferences = 3;

/// The tasks of other lanes that each task waits for.
class Inputs {
 public:
  explicit Inputs(const ir::Schedule& schedule) : begin_(schedule.tasks.size() + 1, 0) {
    for (const ir::Edge& edge : schedule.edges) {
      ++begin_[index_of(edge.to) + 1];
    }
    for (std::size_t i = 1; i < begin_.size(); ++i) {
      begin_[i] += begin_[i - 1];
    }
    from_.resize(schedule.edges.size());
    std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
    for (const ir::Edge& edge : schedule.edges) {
      from_[next[index_of(edge.to)]++] = edge.from;
    }
  }

  [[nodiscard]] const TaskId* begin(TaskId task) const {
    return from_.data() + begin_[index_of(task)];
  }

  [[nodiscard]] const TaskId* end(TaskId task) const {
    return from_.data() + begin_[index_of(task) + 1];
  }

 private:
  std::vector<std::uint32_t> begin_;
  std::vector<TaskId> from_;
};

/// Splits the makespan of each device (compare.h).
class Splitter {
 public:
  Splitter(const ir::Schedule& schedule, const ir::Timeline& timeline)
      : schedule_(schedule), timeline_(timeline), inputs_(schedule) {}

  [[nodiscard]] DeviceTime split(const ir::Lane& lane, Nanos makespan) const {
    DeviceTime time;
    Nanos free = 0;  // since when the lane is
    for (TaskId id : lane.order) {
      const ir::Span& span = timeline_.spans[index_of(id)];
      const TaskId* last = last_input(id);
      const Nanos arrived = std::clamp(last == nullptr ? free : end_of(*last), free, span.start);
      const Nanos made = last == nullptr ? free : std::clamp(made_at(*last), free, arrived);
      time.wait += made - free;
      time.transfer += arrived - made;
      time.engine += span.start - arrived;
      time.compute += span.end - span.start;
      free = span.end;
    }
    time.wait += makespan - free;
    return time;
  }

 private:
  [[nodiscard]] Nanos end_of(TaskId id) const { return timeline_.spans[index_of(id)].end; }

  /// The input that ended last; of several the first. nullptr: it waits for nothing.
  [[nodiscard]] const TaskId* last_input(TaskId id) const {
    const TaskId* begin = inputs_.begin(id);
    const TaskId* end = inputs_.end(id);
    return begin == end ? nullptr : std::max_element(begin, end, [this](TaskId a, TaskId b) {
      return end_of(a) < end_of(b);
    });
  }

  /// When what `input` delivers had been made: a message was made when its producer ended.
  [[nodiscard]] Nanos made_at(TaskId input) const {
    TaskId id = input;
    if (schedule_.task(id).kind() == TaskKind::Receive) {
      if (const TaskId* send = last_input(id)) {
        id = *send;
      }
    }
    if (schedule_.task(id).kind() == TaskKind::Send) {
      if (const TaskId* producer = last_input(id)) {
        id = *producer;
      }
    }
    return end_of(id);
  }

  const ir::Schedule& schedule_;
  const ir::Timeline& timeline_;
  Inputs inputs_;
};

/// Every task, lane or edge that differs, up to kNamedDifferences tasks.
std::vector<ir::Diagnostic> differences(const ir::Schedule& plan, const ir::Schedule& run) {
  std::vector<ir::Diagnostic> faults;
  const auto fault = [&faults](std::string where, std::string message) {
    faults.push_back({"compare-schedules", std::move(where), std::move(message)});
  };
  if (plan.tasks.size() != run.tasks.size() || plan.devices != run.devices) {
    fault("schedule", "the plan (" + plan.policy + ") has " + std::to_string(plan.tasks.size()) +
                          " tasks on " + std::to_string(plan.devices) + " devices, the run (" +
                          run.policy + ") " + std::to_string(run.tasks.size()) + " on " +
                          std::to_string(run.devices) +
                          ": plan and run must come from one schedule");
  }
  std::size_t different = 0;
  for (std::size_t i = 0; i < std::min(plan.tasks.size(), run.tasks.size()); ++i) {
    const bool other =
        plan.tasks[i].payload != run.tasks[i].payload || plan.tasks[i].stage != run.tasks[i].stage;
    if (other && different++ < kNamedDifferences) {
      fault("task " + std::to_string(i), "is " + to_text(plan.tasks[i]) + " in the plan and " +
                                             to_text(run.tasks[i]) + " in the run");
    }
  }
  if (different > kNamedDifferences) {
    fault("schedule", std::to_string(different) + " tasks differ, of which the first " +
                          std::to_string(kNamedDifferences) + " are named");
  }
  if (faults.empty() && plan.lanes != run.lanes) {
    for (std::size_t i = 0; i < std::min(plan.lanes.size(), run.lanes.size()); ++i) {
      const auto& a = plan.lanes[i].order;
      const auto& b = run.lanes[i].order;
      const auto [at, bt] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
      if (at != a.end() && bt != b.end()) {
        fault("lane " + std::to_string(i), to_text(plan.task(*at)) + " comes next in the plan, " +
                                               to_text(run.task(*bt)) + " in the run");
        break;
      }
    }
    if (faults.empty()) {
      fault("schedule", "the same tasks are on other lanes in the plan than in the run");
    }
  }
  if (faults.empty() && plan.edges != run.edges) {
    const auto [a, b] =
        std::mismatch(plan.edges.begin(), plan.edges.end(), run.edges.begin(), run.edges.end());
    const ir::Edge& edge = a != plan.edges.end() ? *a : *b;
    fault(to_text(plan.task(edge.to)),
          "the tasks it waits for are not the same in plan and run, among them " +
              to_text(plan.task(edge.from)));
  }
  return faults;
}

struct Sums {
  std::array<PlannedMeasured, ir::kTaskKinds> by_kind;

  void add(TaskKind kind, Nanos planned, Nanos measured) {
    PlannedMeasured& sum = by_kind[static_cast<std::size_t>(kind)];
    ++sum.tasks;
    sum.planned += planned;
    sum.measured += measured;
  }

  [[nodiscard]] PlannedMeasured total() const {
    PlannedMeasured total;
    for (const PlannedMeasured& sum : by_kind) {
      total.tasks += sum.tasks;
      total.planned += sum.planned;
      total.measured += sum.measured;
    }
    return total;
  }

  [[nodiscard]] std::vector<KindComparison> kinds() const {
    std::vector<KindComparison> kinds;
    for (std::size_t i = 0; i < by_kind.size(); ++i) {
      if (by_kind[i].tasks > 0) {
        kinds.push_back({static_cast<TaskKind>(i), by_kind[i]});
      }
    }
    return kinds;
  }
};

double median(std::vector<double> values) {
  const std::size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle),
                   values.end());
  const double upper = values[middle];
  if (values.size() % 2 == 1) {
    return upper;
  }
  const double lower =
      *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle));
  return (lower + upper) / 2;
}

}  // namespace

std::optional<double> PlannedMeasured::ratio() const {
  if (planned == 0) {
    return std::nullopt;
  }
  return static_cast<double>(measured) / static_cast<double>(planned);
}

std::vector<DeviceTime> device_times(const ir::Schedule& schedule, const ir::Timeline& timeline) {
  const Nanos makespan = ir::makespan(timeline);
  std::vector<DeviceTime> times(schedule.devices, DeviceTime{.wait = makespan});
  const Splitter splitter(schedule, timeline);
  for (const ir::Lane& lane : schedule.lanes) {
    if (lane.kind == ir::LaneKind::Compute) {
      times[index_of(lane.device)] = splitter.split(lane, makespan);
    }
  }
  return times;
}

ir::Result<Comparison> compare(const TimelineFile& plan, const TimelineFile& run) {
  const ir::Schedule& schedule = plan.schedule;
  if (std::vector<ir::Diagnostic> faults = differences(schedule, run.schedule); !faults.empty()) {
    return ir::Error{ir::ErrorKind::BadInput, std::move(faults)};
  }
  Comparison result;
  result.policy = schedule.policy;
  result.plan_measured = plan.timeline.measured;
  result.run_measured = run.timeline.measured;
  result.tasks = schedule.tasks.size();
  result.plan_makespan = ir::makespan(plan.timeline);
  result.run_makespan = ir::makespan(run.timeline);
  result.makespan_ratio = PlannedMeasured{1, result.plan_makespan, result.run_makespan}.ratio();

  Sums all;
  std::map<ir::StageId, Sums> stages;
  std::vector<double> errors;
  std::vector<double> priced_errors;
  std::vector<TaskComparison> tasks;
  for (std::size_t i = 0; i < schedule.tasks.size(); ++i) {
    const ir::Task& task = schedule.tasks[i];
    const Nanos planned = plan.timeline.spans[i].end - plan.timeline.spans[i].start;
    const Nanos measured = run.timeline.spans[i].end - run.timeline.spans[i].start;
    all.add(task.kind(), planned, measured);
    stages[task.stage].add(task.kind(), planned, measured);
    if (measured > 0) {
      errors.push_back(static_cast<double>(std::abs(planned - measured)) /
                       static_cast<double>(measured));
      tasks.push_back(
          {TaskId{static_cast<std::uint32_t>(i)}, "", planned, measured, errors.back()});
      if (planned > 0) {
        priced_errors.push_back(errors.back());
      }
    }
  }
  result.by_kind = all.kinds();
  for (const auto& [stage, sums] : stages) {
    result.by_stage.push_back({stage, sums.total(), sums.kinds()});
  }
  if (!errors.empty()) {
    result.worst_error = *std::max_element(errors.begin(), errors.end());
    result.median_error = median(std::move(errors));
  }
  if (!priced_errors.empty()) {
    result.median_priced_error = median(std::move(priced_errors));
  }
  // The worst first; of equal errors the longer task, then the smaller id.
  const auto worse = [](const TaskComparison& a, const TaskComparison& b) {
    return std::tuple(b.error, b.measured, a.task) < std::tuple(a.error, a.measured, b.task);
  };
  const std::size_t kept = std::min(kWorstTasks, tasks.size());
  std::partial_sort(tasks.begin(), tasks.begin() + static_cast<std::ptrdiff_t>(kept), tasks.end(),
                    worse);
  tasks.resize(kept);
  for (TaskComparison& task : tasks) {
    task.text = to_text(schedule.task(task.task));
  }
  result.worst_tasks = std::move(tasks);

  result.lost = device_times(run.schedule, run.timeline);
  const std::vector<DeviceTime> planned = device_times(schedule, plan.timeline);
  for (std::size_t d = 0; d < planned.size(); ++d) {
    result.lost[d].compute -= planned[d].compute;
    result.lost[d].transfer -= planned[d].transfer;
    result.lost[d].wait -= planned[d].wait;
    result.lost[d].engine -= planned[d].engine;
  }
  return result;
}

}  // namespace xpipe::traces
