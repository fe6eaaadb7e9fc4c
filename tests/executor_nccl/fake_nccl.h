// NCCL made of lists: what the transport is tested on without NCCL, GPUs and network. The two sides
// of a connection meet in a fabric that all ranks of a test share; the nth send of a connection
// meets its nth receive and gives it its bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "executor/nccl/nccl_api.h"

namespace xpipe::tests {

/// Thread-safe.
class FakeFabric {
 public:
  struct Connection {
    executor::NcclId id{};
    bool sends = false;
    std::uint32_t gpu = 0;
    std::uint32_t looks = 0;  ///< how often it was looked at since both were there
  };

  struct Transfer {
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t sent = 0;
    std::size_t received = 0;
  };

  /// Of one connection.
  struct Way {
    int sides = 0;
    std::vector<Transfer> sends;
    std::vector<Transfer> receives;
  };

  void with_way(const executor::NcclId& id, const std::function<void(Way&)>& act);

  [[nodiscard]] executor::NcclId new_id();

 private:
  std::mutex mutex_;
  std::uint8_t next_ = 1;
  std::map<executor::NcclId, Way> ways_;
};

/// Of one rank.
class FakeNccl final : public executor::NcclApi {
 public:
  /// GPU g of the rank is `machine`'s number `first` + g.
  FakeNccl(FakeFabric& fabric, std::string machine, std::uint32_t first)
      : fabric_(fabric), machine_(std::move(machine)), first_(first) {}

  [[nodiscard]] std::string version() const override { return "0.0.0"; }

  [[nodiscard]] ir::Result<std::string> identity(std::uint32_t gpu) override {
    return machine_ + "/" + std::to_string(first_ + gpu);
  }

  [[nodiscard]] ir::Result<executor::NcclId> new_id() override { return fabric_.new_id(); }

  [[nodiscard]] ir::Result<executor::NcclConnection> connect(const executor::NcclId& id,
                                                             bool sends,
                                                             std::uint32_t gpu) override;
  [[nodiscard]] ir::Result<bool> is_ready(executor::NcclConnection connection) override;

  [[nodiscard]] ir::Status check(executor::NcclConnection /*connection*/) override {
    return broken ? ir::Status(*broken) : ir::Status();
  }

  ir::Status send(executor::NcclConnection connection,
                  const void* data,
                  std::size_t bytes,
                  executor::GpuStream stream) override;
  ir::Status receive(executor::NcclConnection connection,
                     void* data,
                     std::size_t bytes,
                     executor::GpuStream stream) override;

  void destroy(executor::NcclConnection connection) override;
  void abort(executor::NcclConnection connection) override;

  /// What check() and is_ready() say.
  std::optional<ir::Error> broken;
  int connected = 0;
  int destroyed = 0;
  int aborted = 0;

 private:
  [[nodiscard]] static FakeFabric::Connection& of(executor::NcclConnection connection) {
    return *static_cast<FakeFabric::Connection*>(connection.handle);
  }

  FakeFabric& fabric_;
  const std::string machine_;
  const std::uint32_t first_;
};

}  // namespace xpipe::tests
