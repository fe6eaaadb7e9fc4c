// The prediction kernel on a GPU gives the bits of its CPU twin, which tests/executor holds against
// the formula.
#include "executor/cuda/cuda_prediction.h"

#include <array>
#include <cmath>
#include <cstring>
#include <memory>

#include <doctest/doctest.h>

#include "executor/cuda/cuda_api.h"
#include "executor/prediction_launch.h"
#include "tests/executor_cuda/device_memory.h"

namespace xpipe::tests {
namespace {

using executor::Number;
using executor::PredictedTensor;
using executor::PredictionStep;
using executor::PredictionTypes;

std::vector<std::byte> numbers(Number type, std::int64_t count, double scale, double turn) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * executor::bytes_of(type));
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = scale * std::sin(turn * static_cast<double>(i) + 1.0);
    if (type == Number::Float64) {
      std::memcpy(bytes.data() + i * 8, &value, sizeof(value));
    } else {
      const auto narrow = static_cast<float>(value);
      std::memcpy(bytes.data() + i * 4, &narrow, sizeof(narrow));
    }
  }
  return bytes;
}

std::vector<std::byte> squares(Number type, std::int64_t count) {
  std::vector<std::byte> bytes = numbers(type, count, 0.1, 0.3);
  for (std::int64_t i = 0; i < count; ++i) {
    if (type == Number::Float64) {
      double value = 0.0;
      std::memcpy(&value, bytes.data() + i * 8, sizeof(value));
      value *= value;
      std::memcpy(bytes.data() + i * 8, &value, sizeof(value));
    } else {
      float value = 0.0F;
      std::memcpy(&value, bytes.data() + i * 4, sizeof(value));
      value *= value;
      std::memcpy(bytes.data() + i * 4, &value, sizeof(value));
    }
  }
  return bytes;
}

/// One tensor, on the host and on the GPU.
struct Twin {
  Twin(PredictionTypes types, PredictionStep step, std::int64_t count, std::size_t skew)
      : weights(numbers(types.weights, count, 1.0, 1.7)),
        direction(numbers(types.weights, count, 0.1, 0.7)),
        square(squares(types.weights, count)),
        slot(static_cast<std::size_t>(count) * executor::bytes_of(types.slot)),
        gpu_weights(weights.size()),
        gpu_direction(direction.size(), skew),
        gpu_square(square.size()),
        gpu_slot(slot.size()) {
    gpu_weights.upload(weights);
    gpu_direction.upload(direction);
    gpu_square.upload(square);
    on_host = {.weights = weights.data(),
               .direction = direction.data(),
               .squares = square.data(),
               .into = slot.data(),
               .count = count,
               .step = step,
               .rate = 0.0123,
               .epsilon = 1e-5,
               .decay = 0.0031};
    on_gpu = on_host;
    on_gpu.weights = gpu_weights.at();
    on_gpu.direction = gpu_direction.at();
    on_gpu.squares = gpu_square.at();
    on_gpu.into = gpu_slot.at();
  }

  std::vector<std::byte> weights, direction, square, slot;
  DeviceMemory gpu_weights, gpu_direction, gpu_square, gpu_slot;
  PredictedTensor on_host;
  PredictedTensor on_gpu;
};

TEST_SUITE("gpu") {
  TEST_CASE("cuda: the fused prediction gives the bits of its CPU twin") {
    if (skips_without_gpu()) {
      return;
    }
    auto api = executor::make_cuda_api();
    REQUIRE(api.ok());
    const auto stream = api.value()->create_stream(0);
    REQUIRE(stream.ok());
    const auto kernel = executor::cuda_prediction_kernel([&stream] { return stream.value(); });
    constexpr std::int64_t kChunk = executor::kGpuPredictionChunk;
    for (const PredictionTypes types : {PredictionTypes{Number::Float32, Number::Float32},
                                        PredictionTypes{Number::Float32, Number::BFloat16},
                                        PredictionTypes{Number::Float32, Number::Float16},
                                        PredictionTypes{Number::Float64, Number::Float64}}) {
      for (const PredictionStep step :
           {PredictionStep::Copy, PredictionStep::Linear, PredictionStep::Normalized}) {
        std::vector<std::unique_ptr<Twin>> twins;
        std::vector<PredictedTensor> on_host;
        std::vector<PredictedTensor> on_gpu;
        for (const std::int64_t count : {std::int64_t{1}, std::int64_t{4}, std::int64_t{1023},
                                         kChunk, kChunk + 3, 5 * kChunk - 1}) {
          // By a skew of one number nothing can be read four at a time.
          for (const std::size_t skew : {std::size_t{0}, executor::bytes_of(types.weights)}) {
            twins.push_back(std::make_unique<Twin>(types, step, count, skew));
            on_host.push_back(twins.back()->on_host);
            on_gpu.push_back(twins.back()->on_gpu);
          }
        }
        executor::predict_on_cpu(on_host, executor::prediction_chunks(on_host, kChunk), types);
        kernel(on_gpu, types);
        const auto event = api.value()->create_event(0);
        REQUIRE(event.ok());
        REQUIRE(api.value()->record(event.value(), stream.value()).ok());
        for (bool done = false; !done;) {
          const auto looked = api.value()->is_done(event.value());
          REQUIRE_MESSAGE(looked.ok(), looked.error().to_string());
          done = looked.value();
        }
        api.value()->destroy(event.value());
        for (const auto& twin : twins) {
          CHECK(twin->gpu_slot.download() == twin->slot);
        }
      }
    }
    api.value()->destroy(stream.value());
  }
}

}  // namespace
}  // namespace xpipe::tests
