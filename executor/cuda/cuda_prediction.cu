#include <cstdint>
#include <stdexcept>
#include <string>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "executor/cuda/cuda_prediction.h"
#include "executor/prediction_launch.h"

namespace xpipe::executor {

namespace {

constexpr int kThreads = 512;
/// Numbers a thread takes at once: 16 bytes of float.
constexpr int kWidth = 4;

// Each operation rounds by itself: what nvcc would make a fused multiply-add of has other bits.
struct InFloat {
  using Number = float;

  __device__ static float add(float a, float b) { return __fadd_rn(a, b); }

  __device__ static float subtract(float a, float b) { return __fsub_rn(a, b); }

  __device__ static float multiply(float a, float b) { return __fmul_rn(a, b); }

  __device__ static float divide(float a, float b) { return __fdiv_rn(a, b); }

  __device__ static float root(float a) { return __fsqrt_rn(a); }
};

struct InDouble {
  using Number = double;

  __device__ static double add(double a, double b) { return __dadd_rn(a, b); }

  __device__ static double subtract(double a, double b) { return __dsub_rn(a, b); }

  __device__ static double multiply(double a, double b) { return __dmul_rn(a, b); }

  __device__ static double divide(double a, double b) { return __ddiv_rn(a, b); }

  __device__ static double root(double a) { return __dsqrt_rn(a); }
};

struct ToFloat {
  using Stored = float;

  __device__ static Stored round(float value) { return value; }
};

struct ToDouble {
  using Stored = double;

  __device__ static Stored round(double value) { return value; }
};

struct ToBFloat16 {
  using Stored = __nv_bfloat16;

  __device__ static Stored round(float value) { return __float2bfloat16_rn(value); }
};

struct ToFloat16 {
  using Stored = __half;

  __device__ static Stored round(float value) { return __float2half_rn(value); }
};

template <typename T>
struct alignas(sizeof(T) * kWidth) Pack {
  T values[kWidth];
};

template <typename T>
__device__ bool is_packed(const T* at) {
  return reinterpret_cast<std::uintptr_t>(at) % sizeof(Pack<T>) == 0;
}

/// How far a tensor is moved, in its own type.
template <typename In>
struct Move {
  typename In::Number rate, epsilon, decay;
  PredictionStep step;

  __device__ typename In::Number of(typename In::Number weight,
                                    typename In::Number direction,
                                    typename In::Number square) const {
    if (step == PredictionStep::Copy) {
      return weight;
    }
    const auto scaled = In::multiply(rate, direction);
    if (step == PredictionStep::Linear) {
      return In::subtract(weight, scaled);
    }
    const auto move = In::divide(scaled, In::add(In::root(square), epsilon));
    return In::subtract(weight, In::add(move, In::multiply(decay, weight)));
  }
};

/// A block does one chunk of one tensor.
template <typename In, typename To>
__global__ void __launch_bounds__(kThreads)
    predict_chunks(const __grid_constant__ PredictionLaunch launch) {
  using Number = typename In::Number;
  using Stored = typename To::Stored;
  const PredictedTensor& tensor = launch.tensors[launch.tensor_of_block[blockIdx.x]];
  const std::int64_t begin =
      static_cast<std::int64_t>(launch.chunk_of_block[blockIdx.x]) * kGpuPredictionChunk;
  const std::int64_t left = tensor.count - begin;
  const int count = static_cast<int>(left < kGpuPredictionChunk ? left : kGpuPredictionChunk);
  const bool has_direction = tensor.step != PredictionStep::Copy;
  const bool has_squares = tensor.step == PredictionStep::Normalized;
  const Number* weights = static_cast<const Number*>(tensor.weights) + begin;
  // Where there is nothing to read, the weights stand in: they are at hand.
  const Number* directions =
      has_direction ? static_cast<const Number*>(tensor.direction) + begin : weights;
  const Number* squares =
      has_squares ? static_cast<const Number*>(tensor.squares) + begin : weights;
  Stored* into = static_cast<Stored*>(tensor.into) + begin;
  const Move<In> move{static_cast<Number>(tensor.rate), static_cast<Number>(tensor.epsilon),
                      static_cast<Number>(tensor.decay), tensor.step};
  int done = 0;
  if (is_packed(weights) && is_packed(directions) && is_packed(squares) && is_packed(into)) {
    const int packs = count / kWidth;
    for (int i = static_cast<int>(threadIdx.x); i < packs; i += kThreads) {
      const Pack<Number> w = reinterpret_cast<const Pack<Number>*>(weights)[i];
      const Pack<Number> d =
          has_direction ? reinterpret_cast<const Pack<Number>*>(directions)[i] : w;
      const Pack<Number> s = has_squares ? reinterpret_cast<const Pack<Number>*>(squares)[i] : w;
      Pack<Stored> result;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        result.values[j] = To::round(move.of(w.values[j], d.values[j], s.values[j]));
      }
      reinterpret_cast<Pack<Stored>*>(into)[i] = result;
    }
    done = packs * kWidth;
  }
  for (int i = done + static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    into[i] = To::round(move.of(weights[i], directions[i], squares[i]));
  }
}

void launch_on(GpuStream stream, const PredictionLaunch& launch, PredictionTypes types) {
  auto* const on = static_cast<cudaStream_t>(stream.handle);
  switch (types.slot) {
    case Number::Float32:
      predict_chunks<InFloat, ToFloat><<<launch.blocks, kThreads, 0, on>>>(launch);
      break;
    case Number::BFloat16:
      predict_chunks<InFloat, ToBFloat16><<<launch.blocks, kThreads, 0, on>>>(launch);
      break;
    case Number::Float16:
      predict_chunks<InFloat, ToFloat16><<<launch.blocks, kThreads, 0, on>>>(launch);
      break;
    case Number::Float64:
      predict_chunks<InDouble, ToDouble><<<launch.blocks, kThreads, 0, on>>>(launch);
      break;
  }
}

}  // namespace

PredictionKernel cuda_prediction_kernel(std::function<GpuStream()> stream) {
  return [stream = std::move(stream)](std::span<const PredictedTensor> tensors,
                                      PredictionTypes types) {
    if (!has_prediction(types)) {
      throw std::runtime_error("no prediction between these types");
    }
    const GpuStream on = stream();
    int before = 0;
    cudaError_t error = cudaGetDevice(&before);
    if (error == cudaSuccess) {
      error = cudaSetDevice(static_cast<int>(on.gpu));
    }
    for (const PredictionLaunch& launch : prediction_launches(tensors)) {
      if (error == cudaSuccess) {
        launch_on(on, launch, types);
        error = cudaGetLastError();
      }
    }
    (void)cudaSetDevice(before);
    if (error != cudaSuccess) {
      throw std::runtime_error(std::string("the prediction's launch: ") +
                               cudaGetErrorString(error));
    }
  };
}

}  // namespace xpipe::executor
