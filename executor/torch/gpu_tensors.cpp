#include "executor/torch/gpu_tensors.h"

#include <string>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include "executor/torch/gpu.h"

namespace xpipe::executor::nn {

namespace {

c10::Stream current_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

ir::Status load_cuda() {
  // Global: its kernels register themselves with the libraries that are there.
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr) {
    return {};
  }
  const char* why = dlerror();
  return ir::make_error(
      ir::ErrorKind::Usage, "no-cuda-library", "--device",
      "LibTorch's CUDA library cannot be loaded: " +
          std::string(why != nullptr ? why : "no reason given") +
          "; pip install torch==" + std::to_string(TORCH_VERSION_MAJOR) + "." +
          std::to_string(TORCH_VERSION_MINOR) + "." + std::to_string(TORCH_VERSION_PATCH) +
          " brings it with all it needs: put that torch/lib first in LD_LIBRARY_PATH, or use "
          "--device cpu");
}

void use_gpu_stream(GpuStream stream) {
  const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(stream.gpu));
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  guard.setDevice(device);
  // The id of a stream that LibTorch did not make is its handle (c10/cuda/CUDAStream.cpp).
  guard.exchangeStream(
      c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream.handle)));
}

void adopt(const torch::Tensor& tensor) {
  if (tensor.defined() && tensor.is_cuda()) {
    tensor.record_stream(current_stream(tensor.device()));
  }
}

torch::Tensor moved_to(const torch::Tensor& tensor, torch::Device device) {
  adopt(tensor);
  if (tensor.device() == device) {
    return tensor;
  }
  if (tensor.is_cpu()) {
    return tensor.pin_memory().to(device, /*non_blocking=*/true);
  }
  if (device.is_cpu()) {
    return tensor.to(device);
  }
  // LibTorch copies on the source's current stream, which is that of some other lane: a stream of
  // the copy's own waits for nothing but the stream that reads it.
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream before = guard.exchangeStream(guard.getStreamFromGlobalPool(tensor.device()));
  adopt(tensor);
  torch::Tensor copy = tensor.to(device, /*non_blocking=*/true);
  guard.exchangeStream(before);
  return copy;
}

torch::Tensor staged_to_host(const torch::Tensor& tensor) {
  if (tensor.is_cpu()) {
    return tensor;
  }
  adopt(tensor);
  torch::Tensor host =
      torch::empty(tensor.sizes(), torch::TensorOptions(tensor.scalar_type()).pinned_memory(true));
  host.copy_(tensor.detach(), /*non_blocking=*/true);
  return host;
}

torch::Tensor dense(const torch::Tensor& tensor) {
  adopt(tensor);
  return tensor.detach().contiguous();
}

PendingNumbers::PendingNumbers(const torch::Tensor& first, const torch::Tensor& second) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor numbers =
      torch::stack({first.detach().to(torch::kFloat64), second.detach().to(torch::kFloat64)});
  if (numbers.is_cpu()) {
    host_ = numbers;
    return;
  }
  host_ = torch::empty({2}, torch::TensorOptions(torch::kFloat64).pinned_memory(true));
  host_.copy_(numbers, /*non_blocking=*/true);
  arrived_ = std::make_shared<c10::Event>(numbers.device().type());
  arrived_->record(current_stream(numbers.device()));
}

bool PendingNumbers::are_there() const {
  return !arrived_ || arrived_->query();
}

double PendingNumbers::get(std::int64_t i) const {
  if (arrived_) {
    arrived_->synchronize();
  }
  return host_.const_data_ptr<double>()[i];
}

}  // namespace xpipe::executor::nn
