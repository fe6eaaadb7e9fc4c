#include "traces/arrows.h"

#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace xpipe::traces {

namespace {

using ir::index_of;
using ir::TaskId;
using ir::TaskKind;

/// Who wrote what a (stage, slot) holds, while the lanes are replayed.
class WeightArrows {
 public:
  explicit WeightArrows(std::vector<Arrow>& arrows) : arrows_(arrows) {}

  void replay(TaskId id, const ir::Task& task) {
    std::visit(
        [&]<typename T>(const T& payload) {
          if constexpr (requires { payload.weights; }) {
            reads(id, task.stage, payload.weights.slot);
          } else if constexpr (std::is_same_v<T, ir::Predict> || std::is_same_v<T, ir::Stash>) {
            reads(id, task.stage, payload.from);
            writer_[{task.stage, payload.into}] = id;
          } else if constexpr (std::is_same_v<T, ir::Step>) {
            writer_[{task.stage, ir::kMasterSlot}] = id;
          } else {
            static_assert(std::is_same_v<T, ir::Release> || std::is_same_v<T, ir::Send> ||
                          std::is_same_v<T, ir::Receive> || std::is_same_v<T, ir::AllReduce> ||
                          std::is_same_v<T, ir::SumTied> || std::is_same_v<T, ir::ClipNorm>);
          }
        },
        task.payload);
  }

 private:
  void reads(TaskId id, ir::StageId stage, ir::SlotId slot) {
    if (const auto it = writer_.find({stage, slot}); it != writer_.end()) {
      arrows_.push_back({ArrowKind::Weights, it->second, id});
    }
  }

  std::vector<Arrow>& arrows_;
  std::map<std::pair<ir::StageId, ir::SlotId>, TaskId> writer_;
};

}  // namespace

std::vector<Arrow> arrows_of(const ir::Schedule& schedule) {
  std::vector<Arrow> arrows;
  std::vector<std::optional<TaskId>> send_of(schedule.tasks.size());
  for (const ir::Edge& edge : schedule.edges) {
    if (schedule.task(edge.from).kind() == TaskKind::Send &&
        schedule.task(edge.to).kind() == TaskKind::Receive) {
      send_of[index_of(edge.to)] = edge.from;
    }
  }
  for (const ir::Edge& edge : schedule.edges) {
    if (schedule.task(edge.from).kind() == TaskKind::Receive && send_of[index_of(edge.from)]) {
      arrows.push_back({ArrowKind::Transfer, *send_of[index_of(edge.from)], edge.to});
    }
  }
  WeightArrows weights(arrows);
  for (const ir::Lane& lane : schedule.lanes) {
    for (TaskId id : lane.order) {
      weights.replay(id, schedule.task(id));
    }
  }
  return arrows;
}

std::vector<Arrow> visible_arrows(const ir::Schedule& schedule, const ir::Timeline& timeline) {
  const auto takes_time = [&timeline](TaskId id) {
    const ir::Span& span = timeline.spans[index_of(id)];
    return span.end > span.start;
  };
  std::vector<std::optional<TaskId>> slice_of(schedule.tasks.size());
  for (const ir::Lane& lane : schedule.lanes) {
    std::optional<TaskId> last;
    for (TaskId id : lane.order) {
      if (takes_time(id)) {
        last = id;
      }
      slice_of[index_of(id)] = last;
    }
  }
  // A send of no time says nothing about the message before it on its lane.
  for (const ir::Edge& edge : schedule.edges) {
    if (schedule.task(edge.to).kind() == TaskKind::Send && !takes_time(edge.to)) {
      slice_of[index_of(edge.to)] = slice_of[index_of(edge.from)];
    }
  }
  std::vector<Arrow> visible;
  for (Arrow arrow : arrows_of(schedule)) {
    const std::optional<TaskId> source = slice_of[index_of(arrow.from)];
    if (source && takes_time(arrow.to) &&
        timeline.spans[index_of(*source)].end <= timeline.spans[index_of(arrow.to)].start) {
      visible.push_back({arrow.kind, *source, arrow.to});
    }
  }
  return visible;
}

}  // namespace xpipe::traces
