// Compiled with -O3 and without fused multiply-add (CMakeLists.txt): the loops below are plain, the
// compiler makes vectors of them, once for every instruction set.
#include "executor/prediction_kernel.h"

#include <algorithm>
#include <array>

#include "ir/status.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define XPIPE_FOR_AVX2 [[gnu::target("avx2,f16c")]]
#define XPIPE_FOR_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,f16c")]]
#else
#define XPIPE_FOR_AVX2
#define XPIPE_FOR_AVX512
#endif

namespace xpipe::executor {

namespace {

// What is inlined into code for another instruction set must be: no function of the standard
// library, of which the linker would keep one copy for all.
#define XPIPE_INLINE [[gnu::always_inline]] inline

struct AsFloat {
  using Stored = float;

  XPIPE_INLINE static Stored round(float value) { return value; }
};

struct AsDouble {
  using Stored = double;

  XPIPE_INLINE static Stored round(double value) { return value; }
};

struct AsBFloat16 {
  using Stored = std::uint16_t;

  XPIPE_INLINE static Stored round(float value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    return static_cast<Stored>(is_nan ? 0x7fc0U : rounded);
  }
};

struct AsFloat16 {
  using Stored = std::uint16_t;

  XPIPE_INLINE static Stored round(float value) {
    constexpr std::uint32_t kInfinity = 0x7f800000U;
    constexpr std::uint32_t kTooLarge = 0x477ff000U;     // 65520: rounds to infinity
    constexpr std::uint32_t kSmallNormal = 0x38800000U;  // 2^-14
    constexpr std::uint32_t kHalf = 0x3f000000U;
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t size = bits & 0x7fffffffU;
    const std::uint32_t normal = (size + 0xfffU + ((size >> 13) & 1U) - 0x38000000U) >> 13;
    // In 0.5 + x, the last place is worth 2^-24, which is the last place of a subnormal half.
    const float shifted = __builtin_bit_cast(float, size) + 0.5F;
    const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, shifted) - kHalf;
    std::uint32_t half = size < kSmallNormal ? subnormal : normal;
    half = size >= kTooLarge ? 0x7c00U : half;
    half = size > kInfinity ? 0x7e00U | ((size >> 13) & 0x3ffU) : half;
    return static_cast<Stored>(half | ((bits >> 16) & 0x8000U));
  }
};

template <typename W>
XPIPE_INLINE W square_root(W value) {
  if constexpr (sizeof(W) == sizeof(float)) {
    return __builtin_sqrtf(value);
  } else {
    return __builtin_sqrt(value);
  }
}

template <typename W, typename To, PredictionStep step>
XPIPE_INLINE void fill(const PredictedTensor& tensor,
                       std::int64_t begin,
                       std::int64_t count,
                       void* into) {
  const W* __restrict weights = static_cast<const W*>(tensor.weights) + begin;
  auto* __restrict target = static_cast<typename To::Stored*>(into);
  const W rate = static_cast<W>(tensor.rate);
  if constexpr (step == PredictionStep::Copy) {
    for (std::int64_t i = 0; i < count; ++i) {
      target[i] = To::round(weights[i]);
    }
  } else if constexpr (step == PredictionStep::Linear) {
    const W* __restrict direction = static_cast<const W*>(tensor.direction) + begin;
    for (std::int64_t i = 0; i < count; ++i) {
      target[i] = To::round(weights[i] - rate * direction[i]);
    }
  } else {
    const W* __restrict direction = static_cast<const W*>(tensor.direction) + begin;
    const W* __restrict squares = static_cast<const W*>(tensor.squares) + begin;
    const W epsilon = static_cast<W>(tensor.epsilon);
    const W decay = static_cast<W>(tensor.decay);
    for (std::int64_t i = 0; i < count; ++i) {
      const W move = rate * direction[i] / (square_root(squares[i]) + epsilon);
      target[i] = To::round(weights[i] - (move + decay * weights[i]));
    }
  }
}

using Fill = void (*)(const PredictedTensor&, std::int64_t, std::int64_t, void*);

#if defined(__x86_64__)
/// The same rounding as AsFloat16's, by the processor: float32 into a block that stays in the first
/// cache, and from there into the slot.
template <PredictionStep step>
[[gnu::target("avx2,f16c")]] void fill_float16(const PredictedTensor& tensor,
                                               std::int64_t begin,
                                               std::int64_t count,
                                               void* into) {
  constexpr std::int64_t kBlock = 1024;
  constexpr std::int64_t kWidth = 8;
  alignas(64) float block[kBlock];
  auto* target = static_cast<std::uint16_t*>(into);
  while (count > 0) {
    const std::int64_t size = count < kBlock ? count : kBlock;
    fill<float, AsFloat, step>(tensor, begin, size, block);
    std::int64_t i = 0;
    for (; i + kWidth <= size; i += kWidth) {
      const __m128i halves = _mm256_cvtps_ph(_mm256_load_ps(block + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i), halves);
    }
    for (; i < size; ++i) {
      target[i] = AsFloat16::round(block[i]);
    }
    begin += size;
    count -= size;
    target += size;
  }
}
#endif

/// Whether a slot's numbers are made by fill_float16().
template <typename To>
inline constexpr bool kIsFloat16 = false;
#if defined(__x86_64__)
template <>
inline constexpr bool kIsFloat16<AsFloat16> = true;
#endif

template <typename W, typename To, PredictionStep step>
void fill_baseline(const PredictedTensor& tensor, std::int64_t begin, std::int64_t n, void* into) {
  fill<W, To, step>(tensor, begin, n, into);
}

template <typename W, typename To, PredictionStep step>
XPIPE_FOR_AVX2 void fill_avx2(const PredictedTensor& tensor,
                              std::int64_t begin,
                              std::int64_t n,
                              void* into) {
  fill<W, To, step>(tensor, begin, n, into);
}

template <typename W, typename To, PredictionStep step>
XPIPE_FOR_AVX512 void fill_avx512(const PredictedTensor& tensor,
                                  std::int64_t begin,
                                  std::int64_t n,
                                  void* into) {
  fill<W, To, step>(tensor, begin, n, into);
}

template <typename W, typename To, PredictionStep step>
Fill fill_on(InstructionSet set) {
  if constexpr (kIsFloat16<To>) {
    return set == InstructionSet::Baseline ? fill_baseline<W, To, step> : fill_float16<step>;
  }
  switch (set) {
    case InstructionSet::Baseline:
      return fill_baseline<W, To, step>;
    case InstructionSet::Avx2:
      return fill_avx2<W, To, step>;
    case InstructionSet::Avx512:
      return fill_avx512<W, To, step>;
  }
  return nullptr;
}

/// By PredictionStep.
using Fills = std::array<Fill, 3>;

template <typename W, typename To>
Fills fills_on(InstructionSet set) {
  return {fill_on<W, To, PredictionStep::Copy>(set), fill_on<W, To, PredictionStep::Linear>(set),
          fill_on<W, To, PredictionStep::Normalized>(set)};
}

Fills fills_of(PredictionTypes types, InstructionSet set) {
  switch (types.slot) {
    case Number::Float32:
      return fills_on<float, AsFloat>(set);
    case Number::BFloat16:
      return fills_on<float, AsBFloat16>(set);
    case Number::Float16:
      return fills_on<float, AsFloat16>(set);
    case Number::Float64:
      return fills_on<double, AsDouble>(set);
  }
  return {};
}

}  // namespace

std::size_t bytes_of(Number number) {
  switch (number) {
    case Number::Float32:
      return 4;
    case Number::Float64:
      return 8;
    case Number::BFloat16:
    case Number::Float16:
      return 2;
  }
  return 0;
}

bool has_prediction(PredictionTypes types) {
  return types.weights == Number::Float32
             ? types.slot != Number::Float64
             : types.weights == Number::Float64 && types.slot == Number::Float64;
}

std::vector<PredictionChunk> prediction_chunks(std::span<const PredictedTensor> tensors,
                                               std::int64_t largest) {
  XPIPE_CHECK(largest > 0) << "chunks of " << largest << " numbers";
  std::size_t total = 0;
  for (const PredictedTensor& tensor : tensors) {
    total += static_cast<std::size_t>((tensor.count + largest - 1) / largest);
  }
  std::vector<PredictionChunk> chunks;
  chunks.reserve(total);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::int64_t begin = 0; begin < tensors[i].count; begin += largest) {
      chunks.push_back({.tensor = static_cast<std::uint32_t>(i),
                        .begin = begin,
                        .count = std::min(largest, tensors[i].count - begin)});
    }
  }
  return chunks;
}

std::int64_t prediction_bytes(std::span<const PredictedTensor> tensors, PredictionTypes types) {
  const auto read = static_cast<std::int64_t>(bytes_of(types.weights));
  const auto written = static_cast<std::int64_t>(bytes_of(types.slot));
  std::int64_t bytes = 0;
  for (const PredictedTensor& tensor : tensors) {
    const auto inputs = static_cast<std::int64_t>(tensor.step) + 1;
    bytes += tensor.count * (inputs * read + written);
  }
  return bytes;
}

bool is_supported(InstructionSet set) {
#if defined(__x86_64__)
  switch (set) {
    case InstructionSet::Baseline:
      return true;
    case InstructionSet::Avx2:
      return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
    case InstructionSet::Avx512:
      return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
             __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
             __builtin_cpu_supports("f16c") != 0;
  }
  return false;
#else
  return set == InstructionSet::Baseline;
#endif
}

InstructionSet best_instruction_set() {
  static const InstructionSet best = [] {
    for (const InstructionSet set : {InstructionSet::Avx512, InstructionSet::Avx2}) {
      if (is_supported(set)) {
        return set;
      }
    }
    return InstructionSet::Baseline;
  }();
  return best;
}

void predict_on_cpu(std::span<const PredictedTensor> tensors,
                    std::span<const PredictionChunk> chunks,
                    PredictionTypes types,
                    InstructionSet set) {
  XPIPE_CHECK(has_prediction(types)) << "no prediction between these types";
  const Fills fills = fills_of(types, set);
  const std::size_t size = bytes_of(types.slot);
  for (const PredictionChunk& chunk : chunks) {
    const PredictedTensor& tensor = tensors[chunk.tensor];
    std::byte* into =
        static_cast<std::byte*>(tensor.into) + static_cast<std::size_t>(chunk.begin) * size;
    fills[static_cast<std::size_t>(tensor.step)](tensor, chunk.begin, chunk.count, into);
  }
}

}  // namespace xpipe::executor
