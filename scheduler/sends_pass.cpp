#include "scheduler/sends_pass.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ir/task.h"
#include "ir/validate.h"

namespace xpipe::scheduler {

namespace {

using ir::Edge;
using ir::index_of;
using ir::LaneKind;
using ir::Schedule;
using ir::TaskId;

constexpr TaskId kNoTask{0xffffffffU};

/// Who produces, receives and consumes each message, and where the tasks stand.
class Messages {
 public:
  explicit Messages(const Schedule& schedule)
      : schedule_(schedule),
        position_(schedule.tasks.size()),
        producer_(schedule.tasks.size(), kNoTask),
        consumer_(schedule.tasks.size(), kNoTask) {
    for (const ir::Lane& lane : schedule.lanes) {
      for (std::uint32_t i = 0; i < lane.order.size(); ++i) {
        position_[index_of(lane.order[i])] = i;
      }
    }
    std::vector<TaskId> consumer_of_receive(schedule.tasks.size(), kNoTask);
    for (const auto& [from, to] : schedule.edges) {
      const ir::Lane& lane = lane_of(from);
      const ir::Lane& next = lane_of(to);
      if (lane.kind == LaneKind::Send && next.kind == LaneKind::Receive) {
        pairs_.emplace_back(from, to);
      } else if (next.kind == LaneKind::Send && is_compute_of(lane, next)) {
        producer_[index_of(to)] = from;
      } else if (lane.kind == LaneKind::Receive && is_compute_of(next, lane)) {
        consumer_of_receive[index_of(from)] = to;
      }
    }
    for (const auto& [send, receive] : pairs_) {
      consumer_[index_of(send)] = consumer_of_receive[index_of(receive)];
    }
  }

  [[nodiscard]] TaskId producer(TaskId send) const { return producer_[index_of(send)]; }

  [[nodiscard]] TaskId consumer(TaskId send) const { return consumer_[index_of(send)]; }

  /// Its neighbour in its lane; kNoTask at the lane's ends.
  [[nodiscard]] TaskId before(TaskId task) const {
    const std::uint32_t position = position_[index_of(task)];
    return position == 0 ? kNoTask : lane_of(task).order[position - 1];
  }

  [[nodiscard]] TaskId behind(TaskId task) const {
    const std::uint32_t next = position_[index_of(task)] + 1;
    return next == lane_of(task).order.size() ? kNoTask : lane_of(task).order[next];
  }

  [[nodiscard]] std::uint32_t position(TaskId task) const { return position_[index_of(task)]; }

  /// (send, receive), sorted.
  [[nodiscard]] const std::vector<std::pair<TaskId, TaskId>>& pairs() const { return pairs_; }

 private:
  [[nodiscard]] const ir::Lane& lane_of(TaskId task) const {
    return schedule_.lane(schedule_.task(task).lane);
  }

  static bool is_compute_of(const ir::Lane& lane, const ir::Lane& link) {
    return lane.kind == LaneKind::Compute && lane.device == link.device;
  }

  const Schedule& schedule_;
  std::vector<std::uint32_t> position_;  ///< in its lane, by TaskId
  std::vector<TaskId> producer_;         ///< by TaskId of a send
  std::vector<TaskId> consumer_;         ///< by TaskId of a send
  std::vector<std::pair<TaskId, TaskId>> pairs_;
};

/// Gives the tasks of each lane the ids that the lane has, in ascending order.
void renumber(Schedule& schedule) {
  std::vector<TaskId> renamed(schedule.tasks.size());
  std::vector<ir::Task> tasks(schedule.tasks.size());
  for (ir::Lane& lane : schedule.lanes) {
    std::vector<TaskId> ids = lane.order;
    std::sort(ids.begin(), ids.end());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      renamed[index_of(lane.order[i])] = ids[i];
      tasks[index_of(ids[i])] = schedule.task(lane.order[i]);
    }
    lane.order = std::move(ids);
  }
  schedule.tasks = std::move(tasks);
  for (Edge& edge : schedule.edges) {
    edge = {renamed[index_of(edge.from)], renamed[index_of(edge.to)]};
  }
  std::sort(schedule.edges.begin(), schedule.edges.end());
}

/// One send after the other for each producer; the producer's lane waits for the last of them.
/// Returns that last one, by producer.
std::vector<TaskId> block_senders(const Schedule& schedule,
                                  const Messages& messages,
                                  std::vector<Edge>& edges) {
  std::vector<TaskId> last(schedule.tasks.size(), kNoTask);
  for (const auto& [send, receive] : messages.pairs()) {
    const TaskId producer = messages.producer(send);
    if (producer == kNoTask) {
      continue;
    }
    TaskId& previous = last[index_of(producer)];
    if (previous != kNoTask && schedule.task(previous).lane != schedule.task(send).lane) {
      edges.push_back({previous, send});
    }
    previous = send;
  }
  for (std::uint32_t i = 0; i < last.size(); ++i) {
    const TaskId next = last[i] == kNoTask ? kNoTask : messages.behind(TaskId{i});
    if (next != kNoTask) {
      edges.push_back({last[i], next});
    }
  }
  return last;
}

}  // namespace

std::string_view sends_name(Sends mode) {
  switch (mode) {
    case Sends::Eager:
      return "eager";
    case Sends::Rendezvous:
      return "rendezvous";
    case Sends::Blocking:
      return "blocking";
  }
  XPIPE_CHECK(false) << "sends " << static_cast<int>(mode) << " do not exist";
  return "";
}

void order_messages_by_consumer(Schedule& schedule) {
  const Messages messages(schedule);
  std::vector<TaskId> consumer(schedule.tasks.size(), kNoTask);  // by TaskId of a send or receive
  for (const auto& [send, receive] : messages.pairs()) {
    consumer[index_of(send)] = messages.consumer(send);
    consumer[index_of(receive)] = messages.consumer(send);
  }
  const auto earlier = [&](TaskId a, TaskId b) {
    const TaskId for_a = consumer[index_of(a)];
    const TaskId for_b = consumer[index_of(b)];
    return for_a != kNoTask && for_b != kNoTask &&
           messages.position(for_a) < messages.position(for_b);
  };
  bool changed = false;
  for (ir::Lane& lane : schedule.lanes) {
    if (lane.kind != LaneKind::Compute &&
        !std::is_sorted(lane.order.begin(), lane.order.end(), earlier)) {
      std::stable_sort(lane.order.begin(), lane.order.end(), earlier);
      changed = true;
    }
  }
  if (changed) {
    renumber(schedule);
  }
}

ir::Status add_send_waits(Sends mode, Schedule& schedule) {
  const auto option = std::find_if(schedule.options.begin(), schedule.options.end(),
                                   [](const auto& entry) { return entry.first == kSendsOption; });
  if (option != schedule.options.end()) {
    return ir::make_error(ir::ErrorKind::Usage, "sends", "--sends",
                          "the schedule has been compiled with " + option->second +
                              " sends already; drop --sends, or compile it anew");
  }
  if (mode == Sends::Eager) {
    return {};
  }
  const Messages messages(schedule);
  std::vector<Edge> edges;
  edges.reserve(2 * messages.pairs().size());
  std::vector<TaskId> last_send;
  if (mode == Sends::Blocking) {
    last_send = block_senders(schedule, messages, edges);
  }
  for (const auto& [send, receive] : messages.pairs()) {
    const TaskId consumer = messages.consumer(send);
    const TaskId before = consumer == kNoTask ? kNoTask : messages.before(consumer);
    if (before == kNoTask) {
      continue;
    }
    const bool sends_itself = mode == Sends::Blocking && last_send[index_of(before)] != kNoTask;
    edges.push_back({sends_itself ? last_send[index_of(before)] : before, send});
  }
  schedule.edges.insert(schedule.edges.end(), edges.begin(), edges.end());
  std::sort(schedule.edges.begin(), schedule.edges.end());
  schedule.edges.erase(std::unique(schedule.edges.begin(), schedule.edges.end()),
                       schedule.edges.end());
  schedule.edges.shrink_to_fit();
  schedule.options.emplace_back(kSendsOption, sends_name(mode));
  std::sort(schedule.options.begin(), schedule.options.end());
  return {};
}

ir::Error explain_deadlock(Sends mode, ir::Error error) {
  if (mode == Sends::Eager) {
    return error;
  }
  for (ir::Diagnostic& diagnostic : error.diagnostics) {
    if (diagnostic.code == "cycle") {
      diagnostic.message +=
          mode == Sends::Blocking
              ? "\n  fix: with blocking sends a device that sends waits until the other receives; "
                "use --sends rendezvous or eager, or a policy that sends and receives in turn"
              : "\n  fix: with rendezvous a message waits until its receiver has come to it; use "
                "--sends eager";
    }
  }
  return error;
}

ir::Status make_sends_wait(Sends mode, Schedule& schedule) {
  if (mode == Sends::Eager) {
    return {};
  }
  if (ir::Status added = add_send_waits(mode, schedule); !added.ok()) {
    return added;
  }
  ir::Status legal = ir::check_legal(schedule);
  return legal.ok() ? legal : ir::Status(explain_deadlock(mode, legal.error()));
}

}  // namespace xpipe::scheduler
