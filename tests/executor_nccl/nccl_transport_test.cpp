// The NCCL transport on an NCCL made of lists: who connects to whom, what goes where, and how it
// ends.
#include "executor/nccl/nccl_transport.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/executor/schedules.h"
#include "tests/executor_nccl/fake_nccl.h"
#include "tests/processes/socket_links.h"

namespace xpipe::tests {

namespace {

using executor::GpuChannel;
using executor::NcclOptions;
using executor::NcclTransport;
using executor::Processes;
using ir::DeviceId;

using Connected = ir::Result<std::unique_ptr<NcclTransport>>;

std::vector<GpuChannel> channels_of(const ir::Schedule& schedule, const Processes& processes) {
  auto channels =
      executor::gpu_channels(schedule, [&](DeviceId device) { return processes.rank_of(device); });
  REQUIRE(channels.ok());
  return std::move(channels).value();
}

NcclOptions options(std::chrono::nanoseconds time_out = std::chrono::seconds(60)) {
  return {.gpu_of = [](DeviceId device) { return ir::index_of(device) % 2; },
          .time_out = time_out,
          .interrupted = nullptr};
}

int value_of(const GpuChannel& channel, int round) {
  return static_cast<int>(ir::index_of(channel.from) * 10000 + ir::index_of(channel.to) * 100) +
         round;
}

}  // namespace

TEST_CASE("nccl: neighbours connect in both directions, and every transfer gets its own bytes") {
  const ir::Schedule schedule = compiled("gpipe", 8, 2, 1);
  for (const std::uint32_t ranks : {2U, 4U}) {
    CAPTURE(ranks);
    FakeFabric fabric;
    run_ranks(ranks, [&](Processes& processes) {
      processes.set_devices(schedule.devices);
      FakeNccl nccl(fabric, "node", 2 * processes.rank());
      const std::vector<GpuChannel> channels = channels_of(schedule, processes);
      const auto ends = static_cast<int>(std::ranges::count_if(channels, [&](const auto& channel) {
        return processes.is_local(channel.from) || processes.is_local(channel.to);
      }));
      {
        const Connected transport = NcclTransport::connect(nccl, processes, channels, options());
        REQUIRE_MESSAGE(transport.ok(), transport.error().to_string());
        CHECK(nccl.connected == ends);
        std::vector<std::array<int, 3>> numbers(channels.size());
        for (int round = 0; round < 3; ++round) {
          for (std::size_t i = 0; i < channels.size(); ++i) {
            const auto& [from, to] = channels[i];
            int& number = numbers[i][static_cast<std::size_t>(round)];
            if (processes.is_local(from)) {
              number = value_of(channels[i], round);
              CHECK(transport.value()->send(from, to, &number, sizeof(int), {}).ok());
            } else if (processes.is_local(to)) {
              CHECK(transport.value()->receive(from, to, &number, sizeof(int), {}).ok());
            }
          }
        }
        CHECK(transport.value()->check().ok());
        REQUIRE(processes.finish().ok());  // all that was sent has been received
        for (std::size_t i = 0; i < channels.size(); ++i) {
          if (processes.is_local(channels[i].to)) {
            for (int round = 0; round < 3; ++round) {
              CHECK(numbers[i][static_cast<std::size_t>(round)] == value_of(channels[i], round));
            }
          }
        }
        CHECK(!transport.value()->send(DeviceId{0}, DeviceId{7}, nullptr, 0, {}).ok());
      }
      CHECK(nccl.destroyed == ends);
      CHECK(nccl.aborted == 0);
    });
  }
}

TEST_CASE("nccl: two ranks on one GPU are told so on both sides, with a way out (K4)") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  FakeFabric fabric;
  run_ranks(2, [&](Processes& processes) {
    processes.set_devices(schedule.devices);
    FakeNccl nccl(fabric, "node", 0);
    NcclOptions on_one = options();
    on_one.gpu_of = [](DeviceId) { return 0U; };
    const Connected refused = NcclTransport::connect(
        nccl, processes, channels_of(schedule, processes), std::move(on_one));
    REQUIRE(!refused.ok());
    CHECK(refused.error().kind == ir::ErrorKind::Usage);
    const std::string text = refused.error().to_string();
    for (const char* token : {"--device-map", "2 ranks", "1 for both", "gloo", "node/0"}) {
      CHECK_MESSAGE(text.find(token) != std::string::npos, text);
    }
    CHECK(nccl.connected == 0);
    CHECK(processes.finish().ok());
  });
}

TEST_CASE("nccl: one GPU number on two machines is two GPUs") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  FakeFabric fabric;
  run_ranks(2, [&](Processes& processes) {
    processes.set_devices(schedule.devices);
    FakeNccl nccl(fabric, "node" + std::to_string(processes.rank()), 0);
    NcclOptions on_one = options();
    on_one.gpu_of = [](DeviceId) { return 0U; };
    CHECK(
        NcclTransport::connect(nccl, processes, channels_of(schedule, processes), std::move(on_one))
            .ok());
    CHECK(processes.finish().ok());
  });
}

TEST_CASE("nccl: a side that never connects ends in a time-out that names both") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  FakeFabric fabrics[2];  // two that never meet
  run_ranks(2, [&](Processes& processes) {
    processes.set_devices(schedule.devices);
    FakeNccl nccl(fabrics[processes.rank()], "node", processes.rank());
    const Connected late = NcclTransport::connect(nccl, processes, channels_of(schedule, processes),
                                                  options(std::chrono::milliseconds(20)));
    REQUIRE(!late.ok());
    CHECK(late.error().diagnostics[0].code == "time-out");
    const std::string text = late.error().to_string();
    CHECK_MESSAGE(text.find("device 0 of rank 0 to device 1 of rank 1") != std::string::npos, text);
    CHECK(text.find("rank " + std::to_string(processes.rank()) + " waits") != std::string::npos);
    CHECK(nccl.aborted == nccl.connected);
    CHECK(processes.finish().ok());
  });
}

TEST_CASE("nccl: a signal ends the connecting") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  FakeFabric fabrics[2];
  const std::atomic<bool> interrupted = true;
  run_ranks(2, [&](Processes& processes) {
    processes.set_devices(schedule.devices);
    FakeNccl nccl(fabrics[processes.rank()], "node", processes.rank());
    NcclOptions with_signal = options();
    with_signal.interrupted = &interrupted;
    const Connected ended = NcclTransport::connect(
        nccl, processes, channels_of(schedule, processes), std::move(with_signal));
    REQUIRE(!ended.ok());
    CHECK(ended.error().kind == ir::ErrorKind::Interrupted);
    CHECK(processes.finish().ok());
  });
}

TEST_CASE("nccl: a failure is named with its channel; after an abort nothing is sent any more") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  FakeFabric fabric;
  run_ranks(2, [&](Processes& processes) {
    processes.set_devices(schedule.devices);
    FakeNccl nccl(fabric, "node", processes.rank());
    const Connected transport =
        NcclTransport::connect(nccl, processes, channels_of(schedule, processes), options());
    REQUIRE(transport.ok());
    nccl.broken = ir::make_error(ir::ErrorKind::Runtime, "nccl", "ncclCommGetAsyncError",
                                 "remote process exited");
    CHECK(transport.value()->check().error().to_string() ==
          "device 0 of rank 0 to device 1 of rank 1, ncclCommGetAsyncError: remote process exited "
          "[nccl]");
    transport.value()->abort();
    transport.value()->abort();
    CHECK(nccl.aborted == 2);
    CHECK(transport.value()->check().ok());
    const ir::Status sent = processes.rank() == 0
                                ? transport.value()->send(DeviceId{0}, DeviceId{1}, nullptr, 0, {})
                                : transport.value()->send(DeviceId{1}, DeviceId{0}, nullptr, 0, {});
    REQUIRE(!sent.ok());
    CHECK(sent.error().kind == ir::ErrorKind::Runtime);
    CHECK(processes.finish().ok());
  });
}

}  // namespace xpipe::tests
