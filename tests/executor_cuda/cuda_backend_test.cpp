// The gpu backend on CUDA: what its tests on a fake GPU (tests/executor) cannot show, namely that
// the calls behind executor/gpu_api.h do what they say.
#include <cstdint>
#include <cstring>
#include <map>

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include "executor/cuda/cuda_api.h"
#include "executor/engine.h"
#include "executor/gpu_backend.h"
#include "tests/executor/recorder.h"
#include "tests/executor/schedules.h"
#include "tests/executor_cuda/device_memory.h"

namespace xpipe::tests {
namespace {

using executor::GpuBackend;

TEST_CASE("cuda: a machine without a GPU says why, and what to use") {
  const auto gpus = executor::cuda_gpus();
  if (gpus.ok()) {
    CHECK(!gpus.value().empty());
    CHECK(gpus.value()[0].memory_bytes > 0);
    return;
  }
  CHECK(gpus.error().kind == ir::ErrorKind::Usage);
  CHECK(gpus.error().diagnostics[0].code == "no-cuda-device");
  CHECK(gpus.error().diagnostics[0].message.starts_with("no CUDA device: "));
  CHECK(gpus.error().diagnostics[0].message.ends_with("use --device cpu"));
  CHECK(!executor::make_cuda_api().ok());
}

TEST_SUITE("gpu") {
  TEST_CASE("cuda: several devices of a schedule share a GPU, in the order of lanes and edges") {
    if (skips_without_gpu()) {
      return;
    }
    auto api = executor::make_cuda_api();
    REQUIRE(api.ok());
    for (const char* policy : {"gpipe", "xpipe"}) {
      const ir::Schedule schedule = compiled(policy, 4, 2, 4);
      GpuBackend backend(*api.value(), {.device_map = {0}, .ahead = 5});
      // Each task adds to a number on the GPU what its predecessors left there: a wait that does
      // not hold shows as a wrong number.
      DeviceMemory values(schedule.tasks.size() * sizeof(std::uint32_t));
      Recorder recorder(schedule);
      const auto handlers = recorder.handlers([&](ir::TaskId task) {
        auto* const place = static_cast<std::uint32_t*>(values.at()) + ir::index_of(task);
        check_cuda(cudaMemsetAsync(place, 0x11, sizeof(std::uint32_t),
                                   static_cast<cudaStream_t>(backend.current().handle)),
                   "cudaMemsetAsync");
        for (const ir::Edge& edge : schedule.edges) {
          if (edge.to == task) {
            check_cuda(
                cudaMemcpyAsync(place,
                                static_cast<std::uint32_t*>(values.at()) + ir::index_of(edge.from),
                                sizeof(std::uint32_t), cudaMemcpyDeviceToDevice,
                                static_cast<cudaStream_t>(backend.current().handle)),
                "cudaMemcpyAsync");
          }
        }
        return ir::Status();
      });
      const auto timeline = executor::run(schedule, handlers, backend);
      REQUIRE_MESSAGE(timeline.ok(), timeline.error().to_string());
      recorder.check_complete();
      const std::vector<std::byte> bytes = values.download();
      for (std::size_t i = 0; i < schedule.tasks.size(); ++i) {
        std::uint32_t value = 0;
        std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
        CHECK(value == 0x11111111U);
      }
      const auto& spans = timeline.value().spans;
      REQUIRE(spans.size() == schedule.tasks.size());
      for (const ir::Edge& edge : schedule.edges) {
        CHECK(spans[ir::index_of(edge.from)].end <= spans[ir::index_of(edge.to)].start);
      }
    }
  }

  TEST_CASE("cuda: a span lasts as long as the GPU works, not as long as the launch") {
    if (skips_without_gpu()) {
      return;
    }
    auto api = executor::make_cuda_api();
    REQUIRE(api.ok());
    const ir::Schedule schedule = compiled("gpipe", 1, 1, 1);
    GpuBackend backend(*api.value(), {});
    DeviceMemory from(std::size_t{64} << 20);
    DeviceMemory into(std::size_t{64} << 20);
    Recorder recorder(schedule);
    const ir::TaskId busy = find_task(schedule, "0F0[s0:v0]");
    const auto handlers = recorder.handlers([&](ir::TaskId task) {
      for (int i = 0; task == busy && i < 100; ++i) {
        check_cuda(
            cudaMemcpyAsync(into.at(), from.at(), std::size_t{64} << 20, cudaMemcpyDeviceToDevice,
                            static_cast<cudaStream_t>(backend.current().handle)),
            "cudaMemcpyAsync");
      }
      return ir::Status();
    });
    const auto timeline = executor::run(schedule, handlers, backend);
    REQUIRE(timeline.ok());
    const ir::Span& span = timeline.value().spans[ir::index_of(busy)];
    // 12.8 GB read and written: no memory moves that in a millisecond.
    CHECK(span.end - span.start > 1'000'000);
  }
}

}  // namespace
}  // namespace xpipe::tests
