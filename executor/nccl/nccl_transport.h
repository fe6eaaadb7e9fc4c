// Tensors from a GPU of this process to one of another over NCCL: a communicator of two ranks for
// each direction of each pair of devices, 0 the side that sends.
//
//   rank 0, device 0                                     rank 1, device 1
//   send lane's stream     == communicator of 0 -> 1 ==>  receive lane's stream
//   receive lane's stream  <= communicator of 1 -> 0 ===  send lane's stream
//
// Meeting, agreement, news of tasks, failures and beats are executor/processes' business, over
// Gloo; here are the bytes alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/gpu_channels.h"
#include "executor/gpu_transport.h"
#include "executor/nccl/nccl_api.h"
#include "executor/peers.h"
#include "ir/status.h"

namespace xpipe::executor {

struct NcclOptions {
  /// GPU of each device of this rank; asked for no others.
  std::function<std::uint32_t(ir::DeviceId)> gpu_of;
  /// Bounds the connecting of one channel. > 0.
  std::chrono::nanoseconds time_out = std::chrono::seconds(300);
  /// Looked at while connecting; set by a signal handler. May be null.
  const std::atomic<bool>* interrupted = nullptr;
};

class NcclTransport final : public GpuTransport {
 public:
  /// Connects this rank's part of `channels`, in their order; all ranks call it with the same ones,
  /// at a drained border. `api` must outlive the transport.
  /// Errors: Usage "one-gpu" when both ends are on one GPU, which NCCL cannot; Runtime "time-out"
  /// and "nccl", naming channel and ranks; Interrupted; those of Peers::receive().
  [[nodiscard]] static ir::Result<std::unique_ptr<NcclTransport>> connect(
      NcclApi& api, Peers& peers, const std::vector<GpuChannel>& channels, NcclOptions options);

  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;
  ~NcclTransport() override;

  // GpuTransport
  ir::Status send(ir::DeviceId from,
                  ir::DeviceId to,
                  const void* data,
                  std::size_t bytes,
                  GpuStream stream) override;
  ir::Status receive(
      ir::DeviceId from, ir::DeviceId to, void* data, std::size_t bytes, GpuStream stream) override;
  [[nodiscard]] ir::Status check() override;
  void abort() override;

 private:
  explicit NcclTransport(NcclApi& api, Peers& peers, NcclOptions options);

  [[nodiscard]] ir::Status open(const GpuChannel& channel);
  [[nodiscard]] ir::Status wait_until_ready(const GpuChannel& channel, NcclConnection connection);
  [[nodiscard]] ir::Result<NcclConnection> connection_of(const GpuChannel& channel) const;
  [[nodiscard]] std::string name_of(const GpuChannel& channel) const;
  [[nodiscard]] ir::Error at(const GpuChannel& channel, ir::Error error) const;

  NcclApi& api_;
  Peers& peers_;
  const NcclOptions options_;
  std::map<GpuChannel, NcclConnection> connections_;
  bool aborted_ = false;
};

}  // namespace xpipe::executor
