#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "ir/task_names.h"
#include "ir/text.h"
#include "ir/validate_levels.h"

namespace xpipe::ir::validation {

namespace {

std::string at_most(std::string_view what, std::uint64_t found, std::uint64_t count) {
  return std::string(what) + " " + std::to_string(found) +
         " does not exist: expected one of 0 to " + std::to_string(count - 1);
}

std::string place_of(const Schedule& schedule, LaneId lane) {
  return "lane \"" + lane_name(schedule.lane(lane)) + "\"";
}

void check_sizes(const Schedule& schedule, Findings& findings) {
  const std::pair<std::string_view, std::uint64_t> sizes[] = {
      {"stages", schedule.stages.size()},
      {"devices", schedule.devices},
      {"micro-batches per mini-batch", schedule.micro_batches},
      {"mini-batches", schedule.mini_batches},
      {"tasks", schedule.tasks.size()},
  };
  for (const auto& [name, count] : sizes) {
    if (count == 0) {
      findings.add("no-tasks", "schedule",
                   "has 0 " + std::string(name) + ": expected at least one");
    }
  }
}

void check_stages(const Schedule& schedule, Findings& findings) {
  for (std::size_t k = 0; k < schedule.stages.size(); ++k) {
    const StageInfo& stage = schedule.stages[k];
    const std::string where = "stage " + std::to_string(k);
    for (std::size_t r = 0; r < stage.devices.size(); ++r) {
      const DeviceId device = stage.devices[r];
      if (index_of(device) >= schedule.devices) {
        findings.add("id-range", where, at_most("device", index_of(device), schedule.devices));
      }
      if (std::find(stage.devices.begin(), stage.devices.begin() + static_cast<std::ptrdiff_t>(r),
                    device) != stage.devices.begin() + static_cast<std::ptrdiff_t>(r)) {
        findings.add("replica-twice", where,
                     "has two replicas on device " + std::to_string(index_of(device)) +
                         ": expected different devices");
      }
    }
    if (stage.devices.empty()) {
      findings.add("id-range", where, "is on no device: expected one at least");
    }
    if (stage.slots == 0) {
      findings.add("id-range", where, "has 0 slots: expected at least 1, the master weights");
    }
  }
}

void check_lanes(const Schedule& schedule, Findings& findings) {
  std::map<std::tuple<LaneKind, DeviceId, DeviceId>, bool> links;
  for (std::uint32_t l = 0; l < schedule.lanes.size(); ++l) {
    const Lane& lane = schedule.lanes[l];
    const std::string where = place_of(schedule, LaneId{l});
    const bool is_compute = lane.kind == LaneKind::Compute;
    const auto check_device = [&](DeviceId device) {
      if (index_of(device) >= schedule.devices) {
        findings.add("id-range", where, at_most("device", index_of(device), schedule.devices));
      }
    };
    check_device(lane.device);
    if (lane.peer != lane.device) {
      check_device(lane.peer);
    }
    if (is_compute && lane.peer != lane.device) {
      findings.add("lane-peer", where,
                   "has peer " + std::to_string(index_of(lane.peer)) +
                       ": expected the lane's own device " + std::to_string(index_of(lane.device)));
    }
    bool& known = links[{lane.kind, lane.device, lane.peer}];
    if (known && !is_compute) {
      findings.add("lane-twice", where, "stands there twice: expected one lane per direction");
    }
    known = true;
  }
}

class TaskShape {
 public:
  TaskShape(const Schedule& schedule, Findings& findings)
      : schedule_(schedule), findings_(findings) {}

  void check(TaskId id) {
    const Task& task = schedule_.task(id);
    check_range(id, "stage", index_of(task.stage), schedule_.stages.size());
    if (const MicroBatch* j = micro_batch_of(task)) {
      check_range(id, "micro-batch", index_of(*j),
                  std::uint64_t{schedule_.micro_batches} * schedule_.mini_batches);
    } else {
      check_range(id, "mini-batch", index_of(mini_batch_of(task, 1)), schedule_.mini_batches);
    }
    if (const Send* send = std::get_if<Send>(&task.payload)) {
      check_range(id, "peer stage", index_of(send->peer), schedule_.stages.size());
    }
    if (const Receive* receive = std::get_if<Receive>(&task.payload)) {
      check_range(id, "peer stage", index_of(receive->peer), schedule_.stages.size());
    }
    if (const SumTied* tied = std::get_if<SumTied>(&task.payload)) {
      check_range(id, "peer stage", index_of(tied->peer), schedule_.stages.size());
      if (tied->peer == task.stage) {
        findings_.add("id-range", id, "shares weights with its own stage: expected another one");
      }
    }
    check_lane(id, task);
  }

 private:
  void check_range(TaskId id, std::string_view what, std::uint64_t found, std::uint64_t count) {
    if (found >= count) {
      findings_.add("id-range", id, at_most(what, found, count));
    }
  }

  void check_lane(TaskId id, const Task& task) {
    check_range(id, "lane", index_of(task.lane), schedule_.lanes.size());
    if (index_of(task.lane) >= schedule_.lanes.size()) {
      return;
    }
    const Lane& lane = schedule_.lane(task.lane);
    LaneKind wanted = LaneKind::Compute;
    std::string_view name = "compute";
    if (task.kind() == TaskKind::Send) {
      wanted = LaneKind::Send;
      name = "send";
    } else if (task.kind() == TaskKind::Receive) {
      wanted = LaneKind::Receive;
      name = "receive";
    }
    if (lane.kind != wanted) {
      findings_.add("lane-kind", id,
                    "stands in " + place_of(schedule_, task.lane) + ": expected a " +
                        std::string(name) + " lane");
    } else if (wanted == LaneKind::Compute && index_of(task.stage) < schedule_.stages.size() &&
               !is_on(schedule_.stage(task.stage), lane.device)) {
      std::string devices;
      for (const DeviceId device : schedule_.stage(task.stage).devices) {
        devices += (devices.empty() ? "" : " or ") + std::to_string(index_of(device));
      }
      findings_.add("lane-device", id,
                    "stands in " + place_of(schedule_, task.lane) + ": expected device " + devices +
                        ", where stage " + std::to_string(index_of(task.stage)) + " is");
    }
  }

  /// A stage on a device that does not exist has been told of already.
  [[nodiscard]] bool is_on(const StageInfo& stage, DeviceId device) const {
    return std::any_of(stage.devices.begin(), stage.devices.end(),
                       [&](DeviceId d) { return d == device || index_of(d) >= schedule_.devices; });
  }

  const Schedule& schedule_;
  Findings& findings_;
};

/// Fills in the positions.
void check_places(Index& index, Findings& findings) {
  const Schedule& schedule = index.schedule;
  constexpr std::uint32_t kNowhere = 0xffffffffU;
  for (Place& place : index.place) {
    place.position = kNowhere;
  }
  for (std::uint32_t l = 0; l < schedule.lanes.size(); ++l) {
    std::uint32_t position = 0;
    for (const TaskId id : schedule.lanes[l].order) {
      if (index_of(id) >= schedule.tasks.size()) {
        findings.add("id-range", place_of(schedule, LaneId{l}),
                     at_most("task", index_of(id), schedule.tasks.size()));
        continue;
      }
      Place& place = index.place[index_of(id)];
      if (place.position != kNowhere) {
        findings.add(
            "task-twice", id,
            "stands a second time in " + place_of(schedule, LaneId{l}) + ": expected one place");
      } else if (place.lane != LaneId{l}) {
        findings.add("lane-mismatch", id,
                     "stands in lane " + std::to_string(l) + " and says lane " +
                         std::to_string(index_of(place.lane)) + ": expected the same");
      }
      place.position = position++;
    }
  }
  for (std::uint32_t i = 0; i < index.place.size(); ++i) {
    if (index.place[i].position == kNowhere) {
      findings.add("task-not-in-lane", TaskId{i}, "stands in no lane: expected one place");
    }
  }
}

void check_edges(const Index& index, Findings& findings) {
  const Schedule& schedule = index.schedule;
  const std::size_t tasks = schedule.tasks.size();
  for (std::size_t i = 0; i < schedule.edges.size(); ++i) {
    const Edge& edge = schedule.edges[i];
    if (index_of(edge.from) >= tasks || index_of(edge.to) >= tasks) {
      const std::uint32_t bad =
          index_of(edge.from) >= tasks ? index_of(edge.from) : index_of(edge.to);
      findings.add("id-range", "edge " + std::to_string(i), at_most("task", bad, tasks));
      continue;
    }
    const auto text = [&schedule, &edge] {
      return to_text(schedule.task(edge.from)) + ">" + to_text(schedule.task(edge.to));
    };
    if (index.place[index_of(edge.from)].lane == index.place[index_of(edge.to)].lane) {
      findings.add("edge-within-lane", text(),
                   "joins two tasks of one lane: expected the lane's order to say it");
    }
    if (i > 0 && schedule.edges[i - 1] == edge) {
      findings.add("edge-duplicate", text(), "is given twice: expected once");
    } else if (i > 0 && edge < schedule.edges[i - 1]) {
      findings.add("edge-order", text(), "stands behind a larger edge: expected edges sorted");
    }
  }
}

}  // namespace

void check_shape(Index& index, Findings& findings) {
  const Schedule& schedule = index.schedule;
  check_sizes(schedule, findings);
  if (!findings.empty()) {
    return;
  }
  check_stages(schedule, findings);
  check_lanes(schedule, findings);
  TaskShape shape(schedule, findings);
  for (std::uint32_t i = 0; i < schedule.tasks.size(); ++i) {
    shape.check(TaskId{i});
  }
  check_places(index, findings);
  check_edges(index, findings);
}

}  // namespace xpipe::ir::validation
