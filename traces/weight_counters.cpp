#include "traces/weight_counters.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "ir/replicas.h"

namespace xpipe::traces {

namespace {

using ir::index_of;
using ir::Nanos;
using ir::TaskKind;

/// How a slot's content is held: [start of its writer, end of its last reader).
struct Holding {
  Nanos begin = 0;
  Nanos end = 0;
};

/// The series of one stage on one device, filled while its tasks pass by in the order of their
/// lane.
class StageCounters {
 public:
  StageCounters(const std::string& name, ir::DeviceId device) {
    version_ = {
        .name = name + "version", .unit = "version", .device = device, .base = 0, .points = {}};
    storages_ = {
        .name = name + "storages", .unit = "storages", .device = device, .base = 1, .points = {}};
    forward_ = {.name = name + "staleness forward",
                .unit = "updates",
                .device = device,
                .base = 0,
                .points = {}};
    backward_ = {.name = name + "staleness backward",
                 .unit = "updates",
                 .device = device,
                 .base = 0,
                 .points = {}};
  }

  /// `mini_batch`s in the order of the steps: how many updates a sequential run has made before i.
  void add_step(ir::MiniBatch mini_batch) { steps_.push_back(index_of(mini_batch)); }

  void sort_steps() { std::sort(steps_.begin(), steps_.end()); }

  void replay(const ir::Task& task, const ir::Span& span, ir::MiniBatch mini_batch) {
    if (const ir::WeightRead* read = ir::weights_read(task)) {
      use(read->slot, span.end);
      const auto updates =
          std::lower_bound(steps_.begin(), steps_.end(), index_of(mini_batch)) - steps_.begin();
      CounterSeries& series = task.kind() == TaskKind::Forward ? forward_ : backward_;
      series.points.emplace_back(span.start, std::int64_t{updates} - std::int64_t{read->version});
    } else if (const auto* predict = std::get_if<ir::Predict>(&task.payload)) {
      write(predict->into, span);
    } else if (const auto* stash = std::get_if<ir::Stash>(&task.payload)) {
      use(stash->from, span.end);
      write(stash->into, span);
    } else if (const auto* release = std::get_if<ir::Release>(&task.payload)) {
      use(release->slot, span.end);
    } else if (const auto* step = std::get_if<ir::Step>(&task.payload)) {
      version_.points.emplace_back(span.end, std::int64_t{step->version} + 1);
    }
  }

  void finish(std::vector<CounterSeries>& out) {
    for (const auto& [slot, holding] : held_) {
      close(holding);
    }
    std::map<Nanos, std::int64_t> changes;
    for (const auto& [time, change] : changes_) {
      changes[time] += change;
    }
    std::int64_t storages = storages_.base;
    for (const auto& [time, change] : changes) {
      storages += change;
      storages_.points.emplace_back(time, storages);
    }
    for (CounterSeries* series : {&version_, &storages_, &forward_, &backward_}) {
      // The lane gives times in order; points that change nothing are dropped.
      std::int64_t last = series->base;
      std::erase_if(series->points, [&last](const auto& point) {
        return std::exchange(last, point.second) == point.second;
      });
      out.push_back(std::move(*series));
    }
  }

 private:
  void use(ir::SlotId slot, Nanos end) {
    if (const auto it = held_.find(slot); it != held_.end()) {
      it->second.end = std::max(it->second.end, end);
    }
  }

  void write(ir::SlotId slot, const ir::Span& span) {
    if (slot == ir::kMasterSlot) {
      return;  // always held
    }
    if (const auto it = held_.find(slot); it != held_.end()) {
      close(it->second);
    }
    held_[slot] = {span.start, span.end};
  }

  void close(const Holding& holding) {
    changes_.emplace_back(holding.begin, 1);
    changes_.emplace_back(holding.end, -1);
  }

  CounterSeries version_;
  CounterSeries storages_;
  CounterSeries forward_;
  CounterSeries backward_;
  std::vector<std::uint32_t> steps_;
  std::map<ir::SlotId, Holding> held_;
  std::vector<std::pair<Nanos, std::int64_t>> changes_;
};

}  // namespace

std::vector<CounterSeries> weight_counters(const ir::Schedule& schedule,
                                           const ir::Timeline& timeline) {
  std::vector<StageCounters> stages;
  const ir::Replicas replicas(schedule);
  stages.reserve(replicas.size());
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    const ir::StageId stage = replicas.stage(r);
    std::string name = "stage " + std::to_string(index_of(stage)) + " ";
    if (schedule.stage(stage).is_replicated()) {
      name += "replica " + std::to_string(r - replicas.begin(stage)) + " ";
    }
    stages.emplace_back(name, replicas.device(r));
  }
  const auto each = [&schedule](auto&& fn) {
    for (const ir::Lane& lane : schedule.lanes) {
      if (lane.kind == ir::LaneKind::Compute) {
        std::for_each(lane.order.begin(), lane.order.end(), fn);
      }
    }
  };
  each([&](ir::TaskId id) {
    const ir::Task& task = schedule.task(id);
    if (const auto* step = std::get_if<ir::Step>(&task.payload)) {
      stages[replicas.of(task)].add_step(step->mini_batch);
    }
  });
  for (StageCounters& stage : stages) {
    stage.sort_steps();
  }
  each([&](ir::TaskId id) {
    const ir::Task& task = schedule.task(id);
    stages[replicas.of(task)].replay(task, timeline.spans[index_of(id)],
                                     ir::mini_batch_of(task, schedule.micro_batches));
  });
  std::vector<CounterSeries> series;
  for (StageCounters& stage : stages) {
    stage.finish(series);
  }
  return series;
}

}  // namespace xpipe::traces
