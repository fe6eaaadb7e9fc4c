#include "scheduler/pipedream_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace xpipe::scheduler {

namespace {

using std::size_t;

constexpr double kNoPlan = std::numeric_limits<double>::infinity();
constexpr std::uint32_t kNoSplit = std::numeric_limits<std::uint32_t>::max();

double seconds(ir::Nanos time) {
  return static_cast<double>(time) / 1e9;
}

/// Sums over the nodes of part `last` that are not in the part before `first`.
struct Stretch {
  double time = 0.0;
  double saved_bytes = 0.0;
  double parameter_bytes = 0.0;
};

/// The best pipeline of states first..last on so many units of a level.
struct Cell {
  double time = kNoPlan;
  std::uint32_t split = kNoSplit;  ///< the last state before the last stage
  std::uint32_t units_before = 0;  ///< on how many units what comes before it runs
  std::uint32_t units = 0;         ///< of the last stage
};

class Level {
 public:
  /// `below` must outlive this; nullptr: single machines. `whole`: only pipelines from state 0.
  Level(const std::vector<Antichain>& states,
        const std::vector<std::vector<std::uint32_t>>& before,
        const PipedreamRequest& request,
        const MachineLevel& level,
        const Level* below,
        bool whole)
      : states_(states),
        before_(before),
        request_(request),
        units_(level.units),
        bandwidth_(level.bandwidth_bytes_per_s),
        below_(below),
        rows_(whole ? 1 : states.size()) {
    cells_.resize(rows_ * states_.size() * units_);
    for (std::uint32_t first = 0; first < rows_; ++first) {
      solve_row(first);
    }
  }

  [[nodiscard]] const Cell& best(std::uint32_t first, std::uint32_t last) const {
    return cell(first, last, units_);
  }

  /// Stages of the best pipeline of first..last, this level's only, in order.
  [[nodiscard]] std::vector<PipedreamStage> stages(std::uint32_t first, std::uint32_t last) const {
    std::vector<PipedreamStage> stages;
    const Cell* at = &best(first, last);
    while (at->split != kNoSplit) {
      stages.push_back({at->split + 1, last + 1, at->units, 0.0});
      last = at->split;
      at = &cell(first, last, at->units_before);
    }
    stages.push_back({first, last + 1, at->units, 0.0});
    std::ranges::reverse(stages);
    return stages;
  }

  [[nodiscard]] Stretch stretch(std::uint32_t first, std::uint32_t last) const {
    const Antichain& end = states_[last];
    if (first == 0) {
      return {seconds(end.time), static_cast<double>(end.saved_bytes),
              static_cast<double>(end.parameter_bytes)};
    }
    const Antichain& begin = states_[first - 1];
    return {seconds(end.time - begin.time),
            static_cast<double>(end.saved_bytes - begin.saved_bytes),
            static_cast<double>(end.parameter_bytes - begin.parameter_bytes)};
  }

 private:
  [[nodiscard]] const Cell& cell(std::uint32_t first, std::uint32_t last, std::uint32_t m) const {
    return cells_[(first * states_.size() + last) * units_ + m - 1];
  }

  Cell& cell(std::uint32_t first, std::uint32_t last, std::uint32_t m) {
    return cells_[(first * states_.size() + last) * units_ + m - 1];
  }

  /// Whether state `part` lies within state `last`; `before_` is sorted.
  [[nodiscard]] bool is_before(std::uint32_t part, std::uint32_t last) const {
    return std::ranges::binary_search(before_[last], part);
  }

  /// A stage's time on one unit: that of the level below where there is one.
  [[nodiscard]] double unit_time(std::uint32_t first, std::uint32_t last, double time) const {
    return below_ == nullptr ? time : below_->best(first, last).time;
  }

  /// Adds what replicas exchange; `lower` machines of a unit share it in the first segment.
  [[nodiscard]] double replicated(double time, double parameters, double m, double lower) const {
    const double sync = 4 * (m - 1) * parameters / (bandwidth_ * m) / lower;
    return (request_.recurrence == Recurrence::Code ? time + sync : std::max(time, sync)) / m;
  }

  [[nodiscard]] double transfer(std::uint32_t state, double m) const {
    const auto bytes = static_cast<double>(states_[state].output_bytes);
    if (request_.recurrence == Recurrence::Paper) {
      return 2.0 * bytes / bandwidth_;
    }
    return request_.compression_ratio ? 2.0 * bytes / (bandwidth_ * m) / *request_.compression_ratio
                                      : 0.0;
  }

  /// `used`: machines of the level from its beginning to the end of this stage.
  [[nodiscard]] bool fits(const Stretch& stage, std::uint32_t used, double m) const {
    return !request_.memory_bytes ||
           std::ceil((units_ - used) / m) * (stage.saved_bytes + stage.parameter_bytes) <=
               *request_.memory_bytes;
  }

  void solve_row(std::uint32_t first) {
    const auto count = static_cast<std::uint32_t>(states_.size());
    const double lower = below_ == nullptr ? 1.0 : below_->units_;
    for (std::uint32_t last = first; last < count; ++last) {
      if (first > 0 && !is_before(first - 1, last)) {
        continue;
      }
      const Stretch all = stretch(first, last);
      for (std::uint32_t m = 1; m <= (request_.straight ? 1 : units_); ++m) {
        if (fits(all, m, m)) {
          cell(first, last, m) = {
              replicated(unit_time(first, last, all.time), all.parameter_bytes, m, lower), kNoSplit,
              0, m};
        }
      }
      for (std::uint32_t m = 2; m <= units_; ++m) {
        improve(first, last, m);
      }
    }
  }

  /// Whether a cut after `split` sends fewer bytes than that of an equal plan.
  [[nodiscard]] bool sends_less(std::uint32_t split, const Cell& equal) const {
    return equal.split != kNoSplit &&
           states_[split].output_bytes < states_[equal.split].output_bytes;
  }

  /// Tries all last stages of first..last on `m` units.
  void improve(std::uint32_t first, std::uint32_t last, std::uint32_t m) {
    const bool is_end = last + 1 == states_.size();
    Cell best = cell(first, last, m);
    if (request_.fewer_machines && cell(first, last, m - 1).time < best.time) {
      best = cell(first, last, m - 1);
    }
    for (const std::uint32_t split : before_[last]) {
      if (first > 0 && !is_before(first - 1, split)) {
        continue;
      }
      const Stretch stage = stretch(split + 1, last);
      const double time = unit_time(split + 1, last, stage.time);
      for (std::uint32_t own = 1; own <= (request_.straight ? 1 : m - 1); ++own) {
        const double earlier = cell(first, split, m - own).time;
        if (earlier > best.time || !fits(stage, m, own)) {
          continue;
        }
        const double slowest = std::max({earlier, replicated(time, stage.parameter_bytes, own, 1.0),
                                         transfer(split, own), is_end ? 0.0 : transfer(last, own)});
        if (slowest < best.time || (slowest == best.time && sends_less(split, best))) {
          best = {slowest, split, m - own, own};
        }
      }
    }
    cell(first, last, m) = best;
  }

  const std::vector<Antichain>& states_;
  const std::vector<std::vector<std::uint32_t>>& before_;
  const PipedreamRequest& request_;
  std::uint32_t units_;
  double bandwidth_;
  const Level* below_;
  size_t rows_;
  std::vector<Cell> cells_;
};

/// By state: the states that lie within it, ascending.
std::vector<std::vector<std::uint32_t>> states_before(const std::vector<Antichain>& states) {
  std::vector<std::vector<std::uint32_t>> before(states.size());
  for (std::uint32_t last = 0; last < states.size(); ++last) {
    for (std::uint32_t part = 0; part < last; ++part) {
      if (states[part].part.is_proper_subset_of(states[last].part)) {
        before[last].push_back(part);
      }
    }
  }
  return before;
}

ir::Status check_pipedream_request(const PipedreamRequest& request) {
  ir::Error error{.kind = ir::ErrorKind::Usage, .diagnostics = {}};
  const auto fault = [&error](std::string where, std::string message) {
    error.diagnostics.push_back({"plan", std::move(where), std::move(message)});
  };
  if (request.levels.empty()) {
    fault("--machines", "names no level; give the machines of each, as in 4,4");
  }
  for (const MachineLevel& level : request.levels) {
    if (level.units == 0) {
      fault("--machines", "a level has 0 machines; at least 1 is needed");
    }
    if (std::isnan(level.bandwidth_bytes_per_s) || level.bandwidth_bytes_per_s <= 0) {
      fault("--level-bandwidth", "a level's bandwidth is not positive; give bytes per second");
    }
  }
  if (request.compression_ratio && !(*request.compression_ratio > 0)) {
    fault("--compression-ratio", "is not positive; 1 sends every byte");
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  return {};
}

}  // namespace

ir::Result<PipedreamPlan> pipedream_plan(const std::vector<Antichain>& states,
                                         const PipedreamRequest& request) {
  if (ir::Status status = check_pipedream_request(request); !status.ok()) {
    return status.error();
  }
  const std::vector<std::vector<std::uint32_t>> before = states_before(states);
  std::vector<std::unique_ptr<Level>> levels;
  levels.reserve(request.levels.size());
  for (size_t l = 0; l < request.levels.size(); ++l) {
    levels.push_back(std::make_unique<Level>(states, before, request, request.levels[l],
                                             l == 0 ? nullptr : levels.back().get(),
                                             l + 1 == request.levels.size()));
  }
  const auto last = static_cast<std::uint32_t>(states.size() - 1);
  PipedreamPlan plan;
  plan.pipeline_s = levels.back()->best(0, last).time;
  if (plan.pipeline_s == kNoPlan) {
    return ir::make_error(ir::ErrorKind::Illegal, "plan-memory", "memory",
                          "no cut and no replication keeps the activations and parameters that a "
                          "machine holds within " +
                              std::to_string(std::llround(request.memory_bytes.value_or(0))) +
                              " bytes; more machines or more memory are needed");
  }
  plan.stages = {{0, last + 1, 1, 0.0}};
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    std::vector<PipedreamStage> finer;
    for (const PipedreamStage& outer : plan.stages) {
      for (PipedreamStage stage : (*level)->stages(outer.first, outer.end - 1)) {
        stage.replicas *= outer.replicas;
        finer.push_back(stage);
      }
    }
    plan.stages = std::move(finer);
  }
  for (PipedreamStage& stage : plan.stages) {
    stage.compute_s = levels.front()->stretch(stage.first, stage.end - 1).time;
  }
  const Stretch all = levels.front()->stretch(0, last);
  plan.one_device_s = all.time;
  plan.data_parallel_s = all.time;
  double lower = 1.0;
  for (const MachineLevel& level : request.levels) {
    const double m = level.units;
    plan.data_parallel_s = (plan.data_parallel_s + 4 * (m - 1) * all.parameter_bytes /
                                                       (level.bandwidth_bytes_per_s * m) / lower) /
                           m;
    lower = m;
  }
  return plan;
}

}  // namespace xpipe::scheduler
