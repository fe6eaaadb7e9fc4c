#include "ir/schedule.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "ir/text.h"
#include "ir/validate.h"
#include "tests/ir/schedules.h"

namespace xpipe::ir {

namespace {

/// GPipe by hand: a chain of `stages`, one device each, with its sends, receives and edges.
Schedule pipeline(std::uint16_t stages, std::uint32_t micro_batches, std::uint32_t mini_batches) {
  Schedule s;
  s.policy = "hand";
  s.micro_batches = micro_batches;
  s.mini_batches = mini_batches;
  s.devices = stages;
  const std::size_t messages = 4ULL * (stages - 1U) * micro_batches * mini_batches;
  s.tasks.reserve(messages + (2ULL * micro_batches + 1) * mini_batches * stages);
  s.edges.reserve(messages / 2 * 3);
  const auto add = [&s](LaneId lane, StageId stage, Payload payload) {
    const TaskId id{static_cast<std::uint32_t>(s.tasks.size())};
    s.tasks.push_back({payload, lane, stage});
    s.lanes[index_of(lane)].order.push_back(id);
    return id;
  };
  std::vector<TaskId> forward(stages * micro_batches * mini_batches);
  std::vector<TaskId> backward(forward.size());
  for (std::uint16_t k = 0; k < stages; ++k) {
    s.stages.push_back({DeviceId{k}, 1});
    s.lanes.push_back({LaneKind::Compute, DeviceId{k}, DeviceId{k}, {}});
    s.lanes.back().order.reserve((2ULL * micro_batches + 1) * mini_batches);
    for (std::uint32_t i = 0; i < mini_batches; ++i) {
      for (std::uint32_t j = i * micro_batches; j < (i + 1) * micro_batches; ++j) {
        forward[j * stages + k] =
            add(LaneId{k}, StageId{k}, Forward{MicroBatch{j}, {i, kMasterSlot, 0}});
      }
      for (std::uint32_t j = i * micro_batches; j < (i + 1) * micro_batches; ++j) {
        backward[j * stages + k] =
            add(LaneId{k}, StageId{k}, Backward{MicroBatch{j}, {i, kMasterSlot, 0}});
      }
      add(LaneId{k}, StageId{k}, Step{MiniBatch{i}, i});
    }
  }
  const auto connect = [&](std::uint16_t from, std::uint16_t to, Pass pass) {
    const LaneId send_lane{static_cast<std::uint32_t>(s.lanes.size())};
    s.lanes.push_back({LaneKind::Send, DeviceId{from}, DeviceId{to}, {}});
    s.lanes.back().order.reserve(micro_batches * mini_batches);
    const LaneId receive_lane{static_cast<std::uint32_t>(s.lanes.size())};
    s.lanes.push_back({LaneKind::Receive, DeviceId{to}, DeviceId{from}, {}});
    s.lanes.back().order.reserve(micro_batches * mini_batches);
    const std::vector<TaskId>& tasks = pass == Pass::Forward ? forward : backward;
    for (std::uint32_t j = 0; j < micro_batches * mini_batches; ++j) {
      const TaskId send = add(send_lane, StageId{from}, Send{8, MicroBatch{j}, StageId{to}, pass});
      const TaskId receive =
          add(receive_lane, StageId{to}, Receive{8, MicroBatch{j}, StageId{from}, pass});
      s.edges.push_back({tasks[j * stages + from], send});
      s.edges.push_back({send, receive});
      s.edges.push_back({receive, tasks[j * stages + to]});
    }
  };
  for (std::uint16_t k = 0; k + 1 < stages; ++k) {
    const auto next = static_cast<std::uint16_t>(k + 1);
    connect(k, next, Pass::Forward);
    connect(next, k, Pass::Backward);
  }
  std::sort(s.edges.begin(), s.edges.end());
  return s;
}

}  // namespace

TEST_CASE("schedule: a large one takes at most 64 bytes a task, edges included") {
  const Schedule schedule = pipeline(8, 8, 500);
  CHECK(schedule.tasks.size() > 150000);
  CHECK(heap_bytes_per_task(schedule) <= 64.0);
  CHECK(heap_bytes_per_task(schedule) > sizeof(Task));
}

TEST_CASE("schedule: a large one is found legal, and survives its text form") {
  const Schedule schedule = pipeline(8, 8, 500);
  const std::vector<Diagnostic> found = validate(schedule);
  CHECK_EQ(found.empty() ? "" : found[0].where + found[0].message, "");
  CHECK(tests::parsed(schedule_to_text(schedule)) == schedule);
}

TEST_CASE("schedule: one fault in a large one is told alone") {
  Schedule schedule = pipeline(4, 4, 100);
  std::get<Forward>(schedule.tasks[9].payload).weights.version = 77;
  const std::vector<Diagnostic> found = validate(schedule);
  REQUIRE_EQ(found.size(), 1);
  CHECK_EQ(found[0].code, "version-mismatch");
  CHECK_EQ(found[0].where, to_text(schedule.tasks[9]));
}

}  // namespace xpipe::ir
