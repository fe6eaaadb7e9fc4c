// The real libnccl: that it is found and has what is used; where two GPUs are, bytes through it.
#include "executor/nccl/nccl_api.h"

#include <array>
#include <iostream>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

namespace xpipe::tests {

namespace {

using executor::NcclApi;
using executor::NcclConnection;
using executor::NcclId;

constexpr auto kTimeOut = std::chrono::seconds(60);

std::unique_ptr<NcclApi> load_or_skip() {
  ir::Result<std::unique_ptr<NcclApi>> nccl = executor::load_nccl(kTimeOut);
  if (!nccl.ok()) {
    std::cout << "[SKIPPED] " << nccl.error().diagnostics[0].message << "\n";
    return nullptr;
  }
  return std::move(nccl).value();
}

bool skips_without_two_gpus() {
  int count = 0;
  const bool skips = cudaGetDeviceCount(&count) != cudaSuccess || count < 2;
  if (skips) {
    (void)cudaGetLastError();
    std::cout << "[SKIPPED] NCCL moves bytes between two GPUs, and " << count << " are here\n";
  }
  return skips;
}

/// Both sides of one connection, each on its GPU, as two ranks would be.
struct Side {
  NcclApi& nccl;
  bool sends;
  std::uint32_t gpu;
  NcclConnection connection = {};
  cudaStream_t stream = nullptr;
  void* memory = nullptr;

  void connect(const NcclId& id, std::size_t bytes) {
    REQUIRE(cudaSetDevice(static_cast<int>(gpu)) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
    const auto made = nccl.connect(id, sends, gpu);
    REQUIRE_MESSAGE(made.ok(), made.error().to_string());
    connection = made.value();
    for (;;) {
      const auto ready = nccl.is_ready(connection);
      REQUIRE_MESSAGE(ready.ok(), ready.error().to_string());
      if (ready.value()) {
        return;
      }
      std::this_thread::yield();
    }
  }

  void free() {
    (void)cudaSetDevice(static_cast<int>(gpu));
    (void)cudaFree(memory);
    (void)cudaStreamDestroy(stream);
  }
};

}  // namespace

TEST_CASE("nccl: the library is found and has every function, without a GPU") {
  const std::unique_ptr<NcclApi> nccl = load_or_skip();
  if (!nccl) {
    return;
  }
  CHECK(nccl->version().starts_with("2."));
  CHECK(nccl->version() >= "2.18");
}

TEST_CASE("nccl: without a GPU a connection says what NCCL says, and does not hang") {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) {
    return;
  }
  (void)cudaGetLastError();
  const std::unique_ptr<NcclApi> nccl = load_or_skip();
  if (!nccl) {
    return;
  }
  CHECK(!nccl->identity(0).ok());
  const auto connection = nccl->connect(NcclId{}, true, 0);
  REQUIRE(!connection.ok());
  CHECK(connection.error().kind == ir::ErrorKind::Runtime);
}

TEST_SUITE("nccl") {
  TEST_CASE("nccl: bytes go from one GPU to another, in order") {
    if (skips_without_two_gpus()) {
      return;
    }
    const std::unique_ptr<NcclApi> nccl = load_or_skip();
    if (!nccl) {
      return;
    }
    // Each side has a library handle of its own, as each rank has.
    auto other = executor::load_nccl(kTimeOut);
    REQUIRE(other.ok());
    const auto id = nccl->new_id();
    REQUIRE(id.ok());
    constexpr std::size_t kBytes = std::size_t{1} << 20;
    constexpr int kTransfers = 5;
    Side sender{.nccl = *nccl, .sends = true, .gpu = 0};
    Side receiver{.nccl = *other.value(), .sends = false, .gpu = 1};
    std::thread sending([&] {
      sender.connect(id.value(), kTransfers * kBytes);
      for (int i = 0; i < kTransfers; ++i) {
        auto* place = static_cast<std::byte*>(sender.memory) + i * kBytes;
        REQUIRE(cudaMemsetAsync(place, i + 1, kBytes, sender.stream) == cudaSuccess);
        CHECK(nccl->send(sender.connection, place, kBytes, {0, sender.stream}).ok());
      }
      CHECK(cudaStreamSynchronize(sender.stream) == cudaSuccess);
    });
    receiver.connect(id.value(), kTransfers * kBytes);
    for (int i = 0; i < kTransfers; ++i) {
      CHECK(other.value()
                ->receive(receiver.connection,
                          static_cast<std::byte*>(receiver.memory) + i * kBytes, kBytes,
                          {1, receiver.stream})
                .ok());
    }
    CHECK(cudaStreamSynchronize(receiver.stream) == cudaSuccess);
    sending.join();
    std::vector<std::byte> came(kTransfers * kBytes);
    REQUIRE(cudaMemcpy(came.data(), receiver.memory, came.size(), cudaMemcpyDeviceToHost) ==
            cudaSuccess);
    for (int i = 0; i < kTransfers; ++i) {
      CHECK(came[i * kBytes] == std::byte(i + 1));
      CHECK(came[(i + 1) * kBytes - 1] == std::byte(i + 1));
    }
    std::thread goodbye([&] { nccl->destroy(sender.connection); });
    other.value()->destroy(receiver.connection);
    goodbye.join();
    sender.free();
    receiver.free();
  }

  TEST_CASE("nccl: an abort ends a send that nobody receives") {
    if (skips_without_two_gpus()) {
      return;
    }
    const std::unique_ptr<NcclApi> nccl = load_or_skip();
    if (!nccl) {
      return;
    }
    auto other = executor::load_nccl(kTimeOut);
    REQUIRE(other.ok());
    const auto id = nccl->new_id();
    REQUIRE(id.ok());
    constexpr std::size_t kBytes = std::size_t{64} << 20;  // no buffer of NCCL's takes so much
    Side sender{.nccl = *nccl, .sends = true, .gpu = 0};
    Side receiver{.nccl = *other.value(), .sends = false, .gpu = 1};
    std::thread receiving([&] { receiver.connect(id.value(), kBytes); });
    sender.connect(id.value(), kBytes);
    receiving.join();
    CHECK(nccl->send(sender.connection, sender.memory, kBytes, {0, sender.stream}).ok());
    CHECK(cudaStreamQuery(sender.stream) == cudaErrorNotReady);
    nccl->abort(sender.connection);
    CHECK(cudaStreamSynchronize(sender.stream) == cudaSuccess);
    other.value()->abort(receiver.connection);
    sender.free();
    receiver.free();
  }
}

}  // namespace xpipe::tests
