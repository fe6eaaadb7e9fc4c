// The threads of the cpu backend: one per device, set up once, kept over runs.
#include "executor/cpu/cpu_pool.h"

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

#include "executor/cpu/cpu_backend.h"
#include "executor/engine.h"
#include "tests/executor/recorder.h"
#include "tests/executor/schedules.h"

namespace xpipe::tests {

using executor::CpuPool;
using ir::DeviceId;
using ir::index_of;

TEST_CASE("cpu pool: on_thread_start runs once in each device's thread, before create() returns") {
  std::mutex mutex;
  std::vector<std::pair<DeviceId, std::thread::id>> starts;
  const auto pool = CpuPool::create({.devices = 3, .on_thread_start = [&](DeviceId device) {
                                       const std::lock_guard lock(mutex);
                                       starts.emplace_back(device, std::this_thread::get_id());
                                     }});
  REQUIRE(pool.ok());
  CHECK(pool.value()->devices() == 3);
  CHECK(pool.value()->idle());
  REQUIRE(starts.size() == 3);
  std::set<DeviceId> devices;
  std::set<std::thread::id> threads{std::this_thread::get_id()};
  for (const auto& [device, thread] : starts) {
    devices.insert(device);
    threads.insert(thread);
  }
  CHECK(devices.size() == 3);
  CHECK(threads.size() == 4);
}

TEST_CASE("cpu pool: each device keeps its thread over runs, and all lanes of a device share it") {
  std::vector<std::thread::id> thread_of(4);
  const auto pool = CpuPool::create({.devices = 4, .on_thread_start = [&](DeviceId device) {
                                       thread_of[index_of(device)] = std::this_thread::get_id();
                                     }});
  REQUIRE(pool.ok());
  for (const std::uint32_t stages : {4U, 2U, 3U}) {
    const ir::Schedule schedule = compiled("xpipe", stages, 2, 2);
    executor::CpuBackend backend(*pool.value());
    Recorder recorder(schedule);
    REQUIRE(executor::run(schedule, recorder.handlers(), backend).ok());
    for (const ir::Lane& lane : schedule.lanes) {
      for (const ir::TaskId task : lane.order) {
        CHECK(recorder.thread_of(task) == thread_of[index_of(lane.device)]);
      }
    }
  }
}

TEST_CASE("cpu pool: a thread that cannot be set up is an error that names its device") {
  SUBCASE("on_thread_start throws") {
    const auto pool = CpuPool::create({.devices = 3, .on_thread_start = [](DeviceId device) {
                                         if (device == DeviceId{1}) {
                                           throw std::invalid_argument("no such setting");
                                         }
                                       }});
    REQUIRE(!pool.ok());
    CHECK(pool.error().kind == ir::ErrorKind::Runtime);
    CHECK(pool.error().to_string() ==
          "device 1: its thread on_thread_start: no such setting [thread-start]");
  }
  SUBCASE("no such processor") {
    const auto pool = CpuPool::create({.devices = 1, .pin_to = {{1U << 20}}});
    REQUIRE(!pool.ok());
    CHECK(pool.error().to_string().find("device 0: its thread cannot be pinned to processor "
                                        "1048576") == 0);
  }
}

TEST_CASE("cpu pool: a schedule of more devices than threads is refused with both numbers") {
  const auto pool = CpuPool::create({.devices = 2});
  REQUIRE(pool.ok());
  executor::CpuBackend backend(*pool.value());
  const ir::Schedule schedule = compiled("gpipe", 3, 1, 1);
  const auto refused = executor::run(schedule, executor::no_op_handlers(), backend);
  REQUIRE(!refused.ok());
  CHECK(refused.error().kind == ir::ErrorKind::Usage);
  CHECK(refused.error().diagnostics[0].code == "pool-too-small");
  CHECK(refused.error().diagnostics[0].message.find("3 devices and the pool has 2 threads") !=
        std::string::npos);
}

TEST_CASE("cpu pool: a job runs once for each device asked for and is gone when the pool is idle") {
  const auto created = CpuPool::create({.devices = 4});
  REQUIRE(created.ok());
  CpuPool& pool = *created.value();
  for (const std::uint32_t devices : {4U, 1U, 0U, 3U, 4U}) {
    std::atomic<int> calls = 0;
    auto token = std::make_shared<int>(0);
    const std::weak_ptr<int> watch = token;
    pool.start([&calls, token = std::move(token)](DeviceId) { ++calls; }, devices);
    REQUIRE(pool.wait_idle_for(std::chrono::minutes(1)));
    CHECK(calls == static_cast<int>(devices));
    CHECK(watch.expired());
  }
}

}  // namespace xpipe::tests
