#include <utility>

#include "app/interrupt.h"
#include "app/train_gpus.h"

#include "executor/gpu_channels.h"
#include "executor/nccl/nccl_transport.h"

namespace xpipe::app {

namespace {

class LoadedWay final : public NcclWay {
 public:
  LoadedWay(std::unique_ptr<executor::NcclApi> api,
            std::unique_ptr<executor::NcclTransport> transport)
      : api_(std::move(api)), transport_(std::move(transport)) {}

  [[nodiscard]] executor::GpuTransport& transport() override { return *transport_; }

 private:
  std::unique_ptr<executor::NcclApi> api_;
  std::unique_ptr<executor::NcclTransport> transport_;
};

}  // namespace

ir::Status NcclWay::check_built() {
  return {};
}

ir::Result<std::unique_ptr<NcclWay>> NcclWay::connect(const ir::Schedule& schedule,
                                                      executor::Peers& peers,
                                                      const TrainRequest& request) {
  const auto channels =
      executor::gpu_channels(schedule, [&](ir::DeviceId device) { return peers.rank_of(device); });
  if (!channels.ok()) {
    return channels.error();
  }
  ir::Result<std::unique_ptr<executor::NcclApi>> api = executor::load_nccl(request.config.time_out);
  if (!api.ok()) {
    return api.error();
  }
  const std::vector<std::uint32_t>& gpus = request.config.compute.gpus;
  auto transport = executor::NcclTransport::connect(
      *api.value(), peers, channels.value(),
      {.gpu_of = [&gpus](ir::DeviceId device) { return gpus[ir::index_of(device) % gpus.size()]; },
       .time_out = request.config.time_out,
       .interrupted = &InterruptGuard::interrupted()});
  if (!transport.ok()) {
    return transport.error();
  }
  return std::unique_ptr<NcclWay>(
      std::make_unique<LoadedWay>(std::move(api).value(), std::move(transport).value()));
}

}  // namespace xpipe::app
