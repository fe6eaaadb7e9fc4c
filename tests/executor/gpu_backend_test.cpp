// What the gpu backend does beside what the conformance suite asks of every backend: streams and
// events, bounded run-ahead, times on the host's clock, faults and hangs of a GPU.
#include "executor/gpu_backend.h"

#include <set>

#include <doctest/doctest.h>

#include "executor/engine.h"
#include "ir/text.h"
#include "tests/executor/fake_gpu.h"
#include "tests/executor/recorder.h"
#include "tests/executor/schedules.h"

namespace xpipe::tests {
namespace {

using executor::GpuBackend;
using executor::GpuStream;

TEST_CASE("gpu backend: every lane has a stream of its own, on the GPU that the map names") {
  FakeGpu gpu({.gpus = 3});
  std::set<void*> streams;
  std::vector<std::uint32_t> gpus;
  GpuBackend backend(gpu, {.device_map = {2, 0}, .on_lane = [&](GpuStream stream) {
                             streams.insert(stream.handle);
                             gpus.push_back(stream.gpu);
                           }});
  const ir::Schedule schedule = compiled("gpipe", 4, 2, 1);
  Recorder recorder(schedule);
  const auto handlers = recorder.handlers([&](ir::TaskId task) {
    const ir::DeviceId device = schedule.lane(schedule.task(task).lane).device;
    CHECK(backend.current().gpu == (ir::index_of(device) % 2 == 0 ? 2 : 0));
    CHECK(backend.current().gpu == gpus.back());
    return ir::Status();
  });
  REQUIRE(executor::run(schedule, handlers, backend).ok());
  std::set<ir::LaneId> used;
  for (const ir::Task& task : schedule.tasks) {
    used.insert(task.lane);
  }
  CHECK(streams.size() == used.size());
  CHECK(gpus.size() == schedule.tasks.size());
}

TEST_CASE(
    "gpu backend: streams are joined by one wait an edge, unless its task is known to be done") {
  FakeGpu slow({.gpus = 1, .looks = 1000});
  const ir::Schedule schedule = compiled("gpipe", 2, 2, 1);
  GpuBackend backend(slow, {.ahead = 1000});
  REQUIRE(executor::run(schedule, executor::no_op_handlers(), backend).ok());
  std::size_t across = 0;
  for (const ir::Edge& edge : schedule.edges) {
    across += schedule.task(edge.from).lane != schedule.task(edge.to).lane ? 1 : 0;
  }
  CHECK(across > 0);
  CHECK(slow.waits() == across);
}

TEST_CASE("gpu backend: the host is ahead of no lane by more than it may, and events come back") {
  const ir::Schedule schedule = compiled("xpipe", 3, 2, 20);
  for (const std::uint32_t ahead : {1U, 2U, 5U}) {
    FakeGpu gpu({.gpus = 2, .looks = 3});
    {
      GpuBackend backend(gpu, {.device_map = {0, 1}, .ahead = ahead});
      for (int run = 0; run < 3; ++run) {
        Recorder recorder(schedule);
        REQUIRE(executor::run(schedule, recorder.handlers(), backend).ok());
        recorder.check_complete();
      }
      // Two events a task that is launched and not done, and what the clocks are compared with.
      CHECK(gpu.most_living_events() <= 2 * ahead * schedule.lanes.size() + 2 * 6);
    }
    CHECK(gpu.living() == 0);
  }
}

TEST_CASE("gpu backend: spans keep the order of lanes and edges, whatever the GPUs' clocks say") {
  FakeGpu gpu({.gpus = 2, .looks = 2});
  GpuBackend backend(gpu, {.device_map = {0, 1}, .ahead = 4});
  const ir::Schedule schedule = compiled("xpipe", 4, 2, 6);
  const auto timeline = executor::run(schedule, executor::no_op_handlers(), backend);
  REQUIRE(timeline.ok());
  REQUIRE(timeline.value().spans.size() == schedule.tasks.size());
  for (const ir::Edge& edge : schedule.edges) {
    const auto& spans = timeline.value().spans;
    CHECK(spans[ir::index_of(edge.from)].end <= spans[ir::index_of(edge.to)].start);
  }
}

TEST_CASE("gpu backend: a GPU that fails ends the run with the task at which it was seen") {
  FakeGpu gpu({.gpus = 1, .fails_at = 20});
  GpuBackend backend(gpu, {.ahead = 4});
  const ir::Schedule schedule = compiled("gpipe", 2, 2, 2);
  const auto result = executor::run(schedule, executor::no_op_handlers(), backend);
  REQUIRE(!result.ok());
  CHECK(result.error().kind == ir::ErrorKind::Runtime);
  REQUIRE(result.error().diagnostics.size() == 1);
  CHECK(result.error().diagnostics[0].code == "gpu-failed");
  CHECK(result.error().diagnostics[0].message == "an illegal address was read");
  CHECK(!result.error().diagnostics[0].where.empty());
}

TEST_CASE("gpu backend: a GPU that hangs ends the run with who waits for whom") {
  // Events 0 to 4 find the origin; the task's end event is the last of the two that follow.
  FakeGpu gpu({.gpus = 1, .hangs_at = 6});
  GpuBackend backend(gpu, {.time_out = std::chrono::milliseconds(5), .ahead = 100});
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  const auto result = executor::run(schedule, executor::no_op_handlers(), backend);
  REQUIRE(!result.ok());
  CHECK(result.error().diagnostics[0].code == "time-out");
  std::string all;
  for (const ir::Diagnostic& diagnostic : result.error().diagnostics) {
    all += diagnostic.where + ": " + diagnostic.message + "\n";
  }
  CAPTURE(all);
  CHECK(all.find("0F0[s0:v0]") != std::string::npos);
  CHECK(all.find("0SEND_F0") != std::string::npos);
  CHECK(backend.timeline().spans.empty());
}

TEST_CASE("gpu backend: a map that names a GPU that is not there is refused, each entry") {
  FakeGpu gpu({.gpus = 2});
  GpuBackend backend(gpu, {.device_map = {0, 2, 7}});
  const auto result =
      executor::run(compiled("gpipe", 3, 1, 1), executor::no_op_handlers(), backend);
  REQUIRE(!result.ok());
  CHECK(result.error().kind == ir::ErrorKind::Usage);
  REQUIRE(result.error().diagnostics.size() == 2);
  CHECK(result.error().diagnostics[0].where == "--device-map");
  CHECK(result.error().diagnostics[1].message.find("device 2 on GPU 7") != std::string::npos);
}

}  // namespace
}  // namespace xpipe::tests
