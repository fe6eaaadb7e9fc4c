#include "app/gpu_device.h"

#include <numeric>
#include <utility>

#include "executor/cuda/cuda_api.h"
#include "executor/cuda/cuda_prediction.h"
#include "executor/gpu_backend.h"
#include "executor/torch/gpu.h"

namespace xpipe::app {

namespace {

class CudaDevice final : public GpuDevice {
 public:
  CudaDevice(std::unique_ptr<executor::GpuApi> api, executor::GpuBackendOptions options)
      : api_(std::move(api)), backend_(*api_, std::move(options)) {}

  [[nodiscard]] executor::GpuBackend& backend() override { return backend_; }

  [[nodiscard]] executor::GpuWay use(executor::GpuTransport& transport) override {
    backend_.set_transport(&transport);
    return {.transport = &transport, .stream = [this] { return backend_.current(); }};
  }

 private:
  std::unique_ptr<executor::GpuApi> api_;
  executor::GpuBackend backend_;
};

}  // namespace

ir::Result<std::uint32_t> GpuDevice::count(const char* option) {
  const auto gpus = executor::cuda_gpus();
  if (!gpus.ok()) {
    ir::Error error = gpus.error();
    error.diagnostics.front().where = option;
    return error;
  }
  return static_cast<std::uint32_t>(gpus.value().size());
}

ir::Result<std::unique_ptr<GpuDevice>> GpuDevice::open(executor::nn::TrainConfig& config) {
  ir::Result<std::unique_ptr<executor::GpuApi>> api = executor::make_cuda_api();
  if (!api.ok()) {
    return api.error();
  }
  std::vector<std::uint32_t>& map = config.compute.gpus;
  if (map.empty()) {
    map.resize(api.value()->gpus());
    std::iota(map.begin(), map.end(), 0U);
  }
  if (ir::Status loaded = executor::nn::load_cuda(); !loaded.ok()) {
    return loaded.error();
  }
  auto device = std::make_unique<CudaDevice>(
      std::move(api).value(),
      executor::GpuBackendOptions{
          .device_map = map, .time_out = config.time_out, .on_lane = executor::nn::use_gpu_stream});
  if (ir::Status status = device->backend().check_map(); !status.ok()) {
    return status.error();
  }
  config.compute.prediction_kernel = executor::cuda_prediction_kernel(
      [&backend = device->backend()] { return backend.current(); });
  return std::unique_ptr<GpuDevice>(std::move(device));
}

}  // namespace xpipe::app
