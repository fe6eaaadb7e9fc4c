#include "executor/nccl/nccl_transport.h"

#include <cstring>
#include <sstream>
#include <thread>
#include <utility>

namespace xpipe::executor {

namespace {

using ir::ErrorKind;
using ir::index_of;
using std::chrono::steady_clock;

constexpr std::chrono::microseconds kLookEvery(100);

/// What the sending side says first: the connection's name, then which GPU it is on.
std::string hello_of(const NcclId& id, const std::string& identity) {
  return std::string(reinterpret_cast<const char*>(id.data()), id.size()) + identity;
}

}  // namespace

NcclTransport::NcclTransport(NcclApi& api, Peers& peers, NcclOptions options)
    : api_(api), peers_(peers), options_(std::move(options)) {}

NcclTransport::~NcclTransport() {
  if (aborted_) {
    return;
  }
  for (const auto& [channel, connection] : connections_) {
    api_.destroy(connection);
  }
}

ir::Result<std::unique_ptr<NcclTransport>> NcclTransport::connect(
    NcclApi& api, Peers& peers, const std::vector<GpuChannel>& channels, NcclOptions options) {
  std::unique_ptr<NcclTransport> transport(new NcclTransport(api, peers, std::move(options)));
  for (const GpuChannel& channel : channels) {
    if (!peers.is_local(channel.from) && !peers.is_local(channel.to)) {
      continue;
    }
    if (ir::Status status = transport->open(channel); !status.ok()) {
      transport->abort();  // the other side may never finish it
      return status.error();
    }
  }
  return transport;
}

std::string NcclTransport::name_of(const GpuChannel& channel) const {
  const auto end = [this](ir::DeviceId device) {
    return "device " + std::to_string(index_of(device)) + " of rank " +
           std::to_string(peers_.rank_of(device));
  };
  return end(channel.from) + " to " + end(channel.to);
}

ir::Error NcclTransport::at(const GpuChannel& channel, ir::Error error) const {
  for (ir::Diagnostic& diagnostic : error.diagnostics) {
    diagnostic.where =
        name_of(channel) + (diagnostic.where.empty() ? std::string() : ", " + diagnostic.where);
  }
  return error;
}

/// Both sides name the GPU that they are on, the sending side the connection, too; then they meet.
ir::Status NcclTransport::open(const GpuChannel& channel) {
  const bool sends = peers_.is_local(channel.from);
  const std::uint32_t gpu = options_.gpu_of(sends ? channel.from : channel.to);
  const std::uint32_t other = peers_.rank_of(sends ? channel.to : channel.from);
  const ir::Result<std::string> identity = api_.identity(gpu);
  if (!identity.ok()) {
    return at(channel, identity.error());
  }
  NcclId id{};
  if (sends) {
    const ir::Result<NcclId> made = api_.new_id();
    if (!made.ok()) {
      return at(channel, made.error());
    }
    id = made.value();
  }
  if (ir::Status sent = peers_.send(other, parcel_of(hello_of(id, identity.value()))); !sent.ok()) {
    return sent;
  }
  const ir::Result<Parcel> parcel = peers_.receive(other);
  if (!parcel.ok()) {
    return parcel.error();
  }
  const std::string hello = bytes_of(parcel.value());
  if (hello.size() < id.size()) {
    return at(channel, ir::make_error(ErrorKind::Runtime, "bad-message", "",
                                      "a greeting of " + std::to_string(hello.size()) + " bytes"));
  }
  if (hello.substr(id.size()) == identity.value()) {
    return ir::make_error(
        ErrorKind::Usage, "one-gpu", "--device-map",
        "puts " + name_of(channel) + " on one GPU (number " + std::to_string(gpu) + " here, " +
            identity.value() + "), and NCCL wants one for each of the " +
            std::to_string(peers_.ranks()) +
            " ranks, not 1 for both; give each its own, use --transport gloo, or one process, "
            "whose stages may share a GPU");
  }
  if (!sends) {
    std::memcpy(id.data(), hello.data(), id.size());
  }
  const ir::Result<NcclConnection> connection = api_.connect(id, sends, gpu);
  if (!connection.ok()) {
    return at(channel, connection.error());
  }
  connections_[channel] = connection.value();
  return wait_until_ready(channel, connection.value());
}

ir::Status NcclTransport::wait_until_ready(const GpuChannel& channel, NcclConnection connection) {
  const steady_clock::time_point since = steady_clock::now();
  for (;;) {
    const ir::Result<bool> ready = api_.is_ready(connection);
    if (!ready.ok()) {
      return at(channel, ready.error());
    }
    if (ready.value()) {
      return {};
    }
    if (options_.interrupted != nullptr && options_.interrupted->load(std::memory_order_relaxed)) {
      return ir::make_error(ErrorKind::Interrupted, "interrupted", "", "stopped by a signal");
    }
    if (steady_clock::now() - since >= options_.time_out) {
      std::ostringstream text;
      text << "rank " << peers_.rank() << " waits for the other side to connect over NCCL, for "
           << std::chrono::duration<double>(options_.time_out).count()
           << " s (--timeout-s); NCCL_DEBUG=INFO says what NCCL is at";
      return at(channel, ir::make_error(ErrorKind::Runtime, "time-out", "", text.str()));
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

ir::Result<NcclConnection> NcclTransport::connection_of(const GpuChannel& channel) const {
  const auto found = connections_.find(channel);
  if (found == connections_.end()) {
    return at(channel, ir::make_error(ErrorKind::Internal, "no-channel", "",
                                      "there was no message on this way when all connected"));
  }
  if (aborted_) {
    return at(channel, ir::make_error(ErrorKind::Runtime, "nccl", "", "aborted"));
  }
  return found->second;
}

ir::Status NcclTransport::send(
    ir::DeviceId from, ir::DeviceId to, const void* data, std::size_t bytes, GpuStream stream) {
  const GpuChannel channel{from, to};
  const ir::Result<NcclConnection> connection = connection_of(channel);
  if (!connection.ok()) {
    return connection.error();
  }
  const ir::Status sent = api_.send(connection.value(), data, bytes, stream);
  return sent.ok() ? sent : ir::Status(at(channel, sent.error()));
}

ir::Status NcclTransport::receive(
    ir::DeviceId from, ir::DeviceId to, void* data, std::size_t bytes, GpuStream stream) {
  const GpuChannel channel{from, to};
  const ir::Result<NcclConnection> connection = connection_of(channel);
  if (!connection.ok()) {
    return connection.error();
  }
  const ir::Status received = api_.receive(connection.value(), data, bytes, stream);
  return received.ok() ? received : ir::Status(at(channel, received.error()));
}

ir::Status NcclTransport::check() {
  if (aborted_) {
    return {};
  }
  for (const auto& [channel, connection] : connections_) {
    if (const ir::Status status = api_.check(connection); !status.ok()) {
      return at(channel, status.error());
    }
  }
  return {};
}

void NcclTransport::abort() {
  if (!std::exchange(aborted_, true)) {
    for (const auto& [channel, connection] : connections_) {
      api_.abort(connection);
    }
  }
}

}  // namespace xpipe::executor
