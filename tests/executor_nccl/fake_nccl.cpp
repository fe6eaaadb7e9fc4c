#include "tests/executor_nccl/fake_nccl.h"

#include <algorithm>
#include <cstring>

namespace xpipe::tests {

using executor::GpuStream;
using executor::NcclConnection;
using executor::NcclId;

namespace {

/// Lets the bytes over, where both ends are there.
void meet(FakeFabric::Way& way) {
  for (std::size_t n = 0; n < std::min(way.sends.size(), way.receives.size()); ++n) {
    FakeFabric::Transfer& receive = way.receives[n];
    if (receive.to != nullptr) {
      XPIPE_CHECK(receive.received == way.sends[n].sent) << "two that are not of one transfer";
      std::memcpy(receive.to, way.sends[n].from, receive.received);
      receive.to = nullptr;
    }
  }
}

}  // namespace

void FakeFabric::with_way(const NcclId& id, const std::function<void(Way&)>& act) {
  const std::lock_guard lock(mutex_);
  act(ways_[id]);
}

NcclId FakeFabric::new_id() {
  const std::lock_guard lock(mutex_);
  NcclId id{};
  id[0] = std::byte{next_++};
  return id;
}

ir::Result<NcclConnection> FakeNccl::connect(const NcclId& id, bool sends, std::uint32_t gpu) {
  fabric_.with_way(id, [](FakeFabric::Way& way) { ++way.sides; });
  ++connected;
  return NcclConnection{new FakeFabric::Connection{.id = id, .sends = sends, .gpu = gpu}};
}

ir::Result<bool> FakeNccl::is_ready(NcclConnection connection) {
  if (broken) {
    return *broken;
  }
  int sides = 0;
  fabric_.with_way(of(connection).id, [&](FakeFabric::Way& way) { sides = way.sides; });
  return sides == 2 && ++of(connection).looks > 2;
}

ir::Status FakeNccl::send(NcclConnection connection,
                          const void* data,
                          std::size_t bytes,
                          GpuStream /*stream*/) {
  XPIPE_CHECK(of(connection).sends) << "this side receives";
  fabric_.with_way(of(connection).id, [&](FakeFabric::Way& way) {
    way.sends.push_back({.from = data, .sent = bytes});
    meet(way);
  });
  return {};
}

ir::Status FakeNccl::receive(NcclConnection connection,
                             void* data,
                             std::size_t bytes,
                             GpuStream /*stream*/) {
  XPIPE_CHECK(!of(connection).sends) << "this side sends";
  fabric_.with_way(of(connection).id, [&](FakeFabric::Way& way) {
    way.receives.push_back({.to = data, .received = bytes});
    meet(way);
  });
  return {};
}

void FakeNccl::destroy(NcclConnection connection) {
  delete &of(connection);
  ++destroyed;
}

void FakeNccl::abort(NcclConnection connection) {
  delete &of(connection);
  ++aborted;
}

}  // namespace xpipe::tests
