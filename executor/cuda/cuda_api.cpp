#include "executor/cuda/cuda_api.h"

#include <cmath>
#include <utility>

#include <cuda_runtime_api.h>

namespace xpipe::executor {

namespace {

using ir::ErrorKind;

ir::Error failed(const char* call, cudaError_t error) {
  return ir::make_error(ErrorKind::Runtime, "cuda-failed", call,
                        std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) +
                            "); a kernel launched before it may be the cause");
}

ir::Status status_of(const char* call, cudaError_t error) {
  return error == cudaSuccess ? ir::Status() : ir::Status(failed(call, error));
}

/// Makes a GPU the current one, and the one before it again.
class OnGpu {
 public:
  explicit OnGpu(std::uint32_t gpu) {
    if (cudaGetDevice(&before_) == cudaSuccess && before_ != static_cast<int>(gpu)) {
      changed_ = cudaSetDevice(static_cast<int>(gpu)) == cudaSuccess;
    }
  }

  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  ~OnGpu() {
    if (changed_) {
      (void)cudaSetDevice(before_);
    }
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

class CudaApi final : public GpuApi {
 public:
  explicit CudaApi(std::uint32_t gpus) : gpus_(gpus) {}

  [[nodiscard]] const char* name() const override { return "cuda"; }

  [[nodiscard]] std::uint32_t gpus() const override { return gpus_; }

  [[nodiscard]] ir::Result<GpuStream> create_stream(std::uint32_t gpu) override {
    const OnGpu on(gpu);
    cudaStream_t stream = nullptr;
    // Non-blocking: no stream waits for the legacy default stream, nor that one for it.
    const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
      return failed("cudaStreamCreateWithFlags", error);
    }
    return GpuStream{gpu, stream};
  }

  void destroy(GpuStream stream) override {
    (void)cudaStreamDestroy(static_cast<cudaStream_t>(stream.handle));
  }

  [[nodiscard]] ir::Result<GpuEvent> create_event(std::uint32_t gpu) override {
    const OnGpu on(gpu);
    cudaEvent_t event = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDefault);
    if (error != cudaSuccess) {
      return failed("cudaEventCreateWithFlags", error);
    }
    return GpuEvent{gpu, event};
  }

  void destroy(GpuEvent event) override {
    (void)cudaEventDestroy(static_cast<cudaEvent_t>(event.handle));
  }

  [[nodiscard]] ir::Status record(GpuEvent event, GpuStream stream) override {
    const OnGpu on(stream.gpu);
    return status_of("cudaEventRecord", cudaEventRecord(static_cast<cudaEvent_t>(event.handle),
                                                        static_cast<cudaStream_t>(stream.handle)));
  }

  [[nodiscard]] ir::Status wait(GpuStream stream, GpuEvent event) override {
    const OnGpu on(stream.gpu);
    return status_of("cudaStreamWaitEvent",
                     cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.handle),
                                         static_cast<cudaEvent_t>(event.handle), 0));
  }

  [[nodiscard]] ir::Result<bool> is_done(GpuEvent event) override {
    const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event.handle));
    if (error != cudaSuccess && error != cudaErrorNotReady) {
      return failed("cudaEventQuery", error);
    }
    return error == cudaSuccess;
  }

  [[nodiscard]] ir::Result<ir::Nanos> between(GpuEvent from, GpuEvent to) override {
    float milliseconds = 0.0F;
    const cudaError_t error = cudaEventElapsedTime(
        &milliseconds, static_cast<cudaEvent_t>(from.handle), static_cast<cudaEvent_t>(to.handle));
    if (error != cudaSuccess) {
      return failed("cudaEventElapsedTime", error);
    }
    return static_cast<ir::Nanos>(std::llround(static_cast<double>(milliseconds) * 1e6));
  }

 private:
  std::uint32_t gpus_;
};

std::string why_none(cudaError_t error) {
  if (error == cudaErrorNoDevice) {
    return "the driver shows none (CUDA_VISIBLE_DEVICES may hide them)";
  }
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
      return "there is no NVIDIA driver";
    }
    return "the driver is for CUDA " + std::to_string(driver / 1000) + "." +
           std::to_string(driver % 1000 / 10) + ", and this program needs " +
           std::to_string(CUDART_VERSION / 1000);
  }
  return std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) + ")";
}

ir::Error no_device(const std::string& why) {
  return ir::make_error(ErrorKind::Usage, "no-cuda-device", "--device",
                        "no CUDA device: " + why + "; use --device cpu");
}

/// Unlike the first call of a kernel, this costs nothing where two GPUs are not connected.
void connect_peers(int gpus) {
  for (int from = 0; from < gpus; ++from) {
    for (int to = 0; to < gpus; ++to) {
      int can = 0;
      if (from != to && cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess && can != 0) {
        const OnGpu on(static_cast<std::uint32_t>(from));
        (void)cudaDeviceEnablePeerAccess(to, 0);
      }
    }
  }
  (void)cudaGetLastError();  // what was connected already is no error
}

}  // namespace

ir::Result<std::vector<CudaGpu>> cuda_gpus() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return no_device(why_none(error == cudaSuccess ? cudaErrorNoDevice : error));
  }
  std::vector<CudaGpu> gpus;
  gpus.reserve(static_cast<std::size_t>(count));
  for (int gpu = 0; gpu < count; ++gpu) {
    cudaDeviceProp properties{};
    if (const cudaError_t asked = cudaGetDeviceProperties(&properties, gpu); asked != cudaSuccess) {
      return failed("cudaGetDeviceProperties", asked);
    }
    gpus.push_back({.name = static_cast<const char*>(properties.name),
                    .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem)});
  }
  return gpus;
}

ir::Result<std::unique_ptr<GpuApi>> make_cuda_api() {
  const ir::Result<std::vector<CudaGpu>> gpus = cuda_gpus();
  if (!gpus.ok()) {
    return gpus.error();
  }
  connect_peers(static_cast<int>(gpus.value().size()));
  return std::unique_ptr<GpuApi>(
      std::make_unique<CudaApi>(static_cast<std::uint32_t>(gpus.value().size())));
}

}  // namespace xpipe::executor
