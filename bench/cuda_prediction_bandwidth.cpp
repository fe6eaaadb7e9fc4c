// The fused prediction on a GPU (executor/cuda/cuda_prediction.h) beside the memory's bandwidth:
//
//   copy    memory to memory on the GPU, read and written bytes counted: what a share is of
//   fused   the formula of adam (master, two moments) and of momentum into slots of float32,
//   bfloat16
//           and float16, all numbers in one tensor and in 161 of very different sizes, as a network
//           has them
//
// All take turns, in a changing order; times are of CUDA events around a batch of launches that
// follow each other; medians over rounds. Where no GPU is, it says so and measures nothing.
//
//   ./dev bench cuda_prediction_bandwidth [ROUNDS] [MILLIONS-OF-NUMBERS]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "executor/cuda/cuda_api.h"
#include "executor/cuda/cuda_prediction.h"

namespace {

using xpipe::executor::GpuStream;
using xpipe::executor::Number;
using xpipe::executor::PredictedTensor;
using xpipe::executor::PredictionStep;
using xpipe::executor::PredictionTypes;

constexpr int kLaunches = 20;  ///< of a batch: so that a launch's own cost is hidden, as in a step

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(error));
  }
}

class Memory {
 public:
  explicit Memory(std::size_t bytes) {
    check(cudaMalloc(&memory_, bytes));
    check(cudaMemset(memory_, 0, bytes));
  }

  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  ~Memory() { (void)cudaFree(memory_); }

  [[nodiscard]] float* floats() const { return static_cast<float*>(memory_); }

  [[nodiscard]] std::byte* bytes() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_ = nullptr;
};

struct Contender {
  std::string name;
  std::int64_t bytes = 0;
  std::function<void()> launch;
  std::vector<double> gigabytes_per_s = {};
};

/// Sizes that add up to `n`: a part of what is left again and again, as a network's layers differ.
std::vector<std::int64_t> uneven(std::int64_t n, std::size_t pieces) {
  std::vector<std::int64_t> sizes;
  std::int64_t left = n;
  for (std::size_t i = 0; i + 1 < pieces; ++i) {
    const std::int64_t size = std::max<std::int64_t>(1, i % 4 == 0 ? left / 8 : left / 64);
    sizes.push_back(size);
    left -= size;
  }
  sizes.push_back(left);
  return sizes;
}

/// GB/s of a batch of launches.
double measure(const Contender& contender,
               cudaStream_t stream,
               cudaEvent_t begin,
               cudaEvent_t end) {
  check(cudaEventRecord(begin, stream));
  for (int i = 0; i < kLaunches; ++i) {
    contender.launch();
  }
  check(cudaEventRecord(end, stream));
  check(cudaEventSynchronize(end));
  float milliseconds = 0.0F;
  check(cudaEventElapsedTime(&milliseconds, begin, end));
  return static_cast<double>(contender.bytes) * kLaunches /
         (static_cast<double>(milliseconds) * 1e6);
}

std::vector<Contender> contenders(std::int64_t n,
                                  const Memory& weights,
                                  const Memory& direction,
                                  const Memory& squares,
                                  const Memory& slot,
                                  cudaStream_t stream) {
  std::vector<Contender> all;
  all.push_back({"copy, device to device", 8 * n, [&weights, &slot, stream, n] {
                   check(cudaMemcpyAsync(slot.floats(), weights.floats(),
                                         static_cast<std::size_t>(n) * sizeof(float),
                                         cudaMemcpyDeviceToDevice, stream));
                 }});
  const auto kernel =
      xpipe::executor::cuda_prediction_kernel([stream] { return GpuStream{0, stream}; });
  for (const auto& [step, formula] :
       {std::pair{PredictionStep::Normalized, "adam"}, {PredictionStep::Linear, "momentum"}}) {
    for (const auto& [number, into] : {std::pair{Number::Float32, "float32"},
                                       {Number::BFloat16, "bfloat16"},
                                       {Number::Float16, "float16"}}) {
      for (const std::size_t pieces : {std::size_t{1}, std::size_t{161}}) {
        std::vector<PredictedTensor> list;
        std::int64_t at = 0;
        for (const std::int64_t count : uneven(n, pieces)) {
          const auto slot_at = static_cast<std::size_t>(at) * xpipe::executor::bytes_of(number);
          list.push_back({.weights = weights.floats() + at,
                          .direction = direction.floats() + at,
                          .squares = squares.floats() + at,
                          .into = slot.bytes() + slot_at,
                          .count = count,
                          .step = step,
                          .rate = 1e-3,
                          .epsilon = 1e-8});
          at += count;
        }
        const PredictionTypes types{.slot = number};
        const std::int64_t bytes = xpipe::executor::prediction_bytes(list, types);
        all.push_back({std::string("fused, ") + formula + " into " + into + ", " +
                           std::to_string(pieces) + (pieces == 1 ? " tensor" : " tensors"),
                       bytes, [kernel, list, types] { kernel(list, types); }});
      }
    }
  }
  return all;
}

void print(const std::vector<Contender>& all) {
  const auto median = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  const double bandwidth = median(all.front().gigabytes_per_s);
  std::printf("| contender | GB/s | of the copy's | least and most GB/s |\n|---|---|---|---|\n");
  for (const Contender& contender : all) {
    const auto [least, most] =
        std::minmax_element(contender.gigabytes_per_s.begin(), contender.gigabytes_per_s.end());
    const double rate = median(contender.gigabytes_per_s);
    std::printf("| %s | %.1f | %.2f | %.1f to %.1f |\n", contender.name.c_str(), rate,
                rate / bandwidth, *least, *most);
  }
}

void run(int rounds, int millions, const std::string& gpu) {
  const std::int64_t n = std::int64_t{millions} * 1'000'000;
  const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
  const Memory weights(bytes);
  const Memory direction(bytes);
  const Memory squares(bytes);
  const Memory slot(bytes);
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  check(cudaDeviceSynchronize());  // the zeros are there
  std::vector<Contender> all = contenders(n, weights, direction, squares, slot, stream);
  for (int round = 0; round <= rounds; ++round) {
    for (std::size_t turn = 0; turn < all.size(); ++turn) {
      Contender& contender = all[(turn + static_cast<std::size_t>(round)) % all.size()];
      const double rate = measure(contender, stream, begin, end);
      if (round > 0) {  // the first round warms up
        contender.gigabytes_per_s.push_back(rate);
      }
    }
  }
  std::printf("%s, %d million numbers, %d rounds of %d launches, medians\n\n", gpu.c_str(),
              millions, rounds, kLaunches);
  print(all);
  (void)cudaEventDestroy(begin);
  (void)cudaEventDestroy(end);
  (void)cudaStreamDestroy(stream);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const int millions = argc > 2 ? std::atoi(argv[2]) : 100;
  if (rounds < 1 || millions < 1) {
    std::fprintf(stderr, "usage: bench_cuda_prediction_bandwidth [ROUNDS] [MILLIONS-OF-NUMBERS]\n");
    return 2;
  }
  const auto gpus = xpipe::executor::cuda_gpus();
  if (!gpus.ok()) {
    std::printf("[SKIPPED] nothing is measured: %s\n", gpus.error().diagnostics[0].message.c_str());
    return 0;
  }
  try {
    run(rounds, millions, gpus.value()[0].name);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "bench_cuda_prediction_bandwidth: %s\n", exception.what());
    return 5;
  }
  return 0;
}
