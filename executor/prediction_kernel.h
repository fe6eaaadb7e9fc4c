// The fused prediction: from the master weights and the optimizer's state of many tensors into a
// slot, each number read once and written once, whatever the optimizer (methods.md 1.4 and 2):
//
//   Copy        W_hat = W
//   Linear      W_hat = W - rate * h                                 sgd, momentum buffers,
//   averages Normalized  W_hat = W - (rate * h / (sqrt(q) + epsilon) + decay * W)     adam, adamw,
//   rmsprop
//
// The arithmetic is in the masters' type, rounded after every operation (no fused multiply-add),
// and the result is rounded once to the slot's type, to nearest, ties to even. So every instruction
// set, any number of threads and the CUDA kernel (executor/cuda) give the same bits.
//
// No torch: raw pointers to contiguous memory, which the caller owns. Thread-safe: chunks do not
// overlap, so threads may share a list of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace xpipe::executor {

enum class Number : std::uint8_t { Float32, Float64, BFloat16, Float16 };

[[nodiscard]] std::size_t bytes_of(Number number);

enum class PredictionStep : std::uint8_t { Copy, Linear, Normalized };

/// One tensor of a stage: where it is read and written, and how far it is moved.
struct PredictedTensor {
  const void* weights = nullptr;
  const void* direction = nullptr;  ///< h: first moment, momentum buffer, gradient; not with Copy
  const void* squares = nullptr;    ///< q: second moment; with Normalized only
  void* into = nullptr;             ///< shares no memory with the others
  std::int64_t count = 0;           ///< numbers
  PredictionStep step = PredictionStep::Copy;
  double rate = 0.0;     ///< of all steps aimed at together, bias corrections included
  double epsilon = 0.0;  ///< > 0 with Normalized
  double decay = 0.0;    ///< with Normalized: of the weights themselves, over all steps
};

/// `weights` is also the type of direction and squares: Float32 with any slot but Float64, or
/// Float64 with Float64.
struct PredictionTypes {
  Number weights = Number::Float32;
  Number slot = Number::Float32;
};

[[nodiscard]] bool has_prediction(PredictionTypes types);

/// Part of one tensor of a list.
struct PredictionChunk {
  std::uint32_t tensor = 0;  ///< its place in the list
  std::int64_t begin = 0;
  std::int64_t count = 0;

  bool operator==(const PredictionChunk&) const = default;
};

/// Cuts every tensor into chunks of `largest` numbers, its last one shorter; in order. What a
/// thread, or a block of a GPU, does in one go. Requires: largest > 0.
[[nodiscard]] std::vector<PredictionChunk> prediction_chunks(
    std::span<const PredictedTensor> tensors, std::int64_t largest);

/// What the prediction of all `tensors` reads and writes.
[[nodiscard]] std::int64_t prediction_bytes(std::span<const PredictedTensor> tensors,
                                            PredictionTypes types);

/// Does the prediction of whole tensors, on the device where they are.
using PredictionKernel = std::function<void(std::span<const PredictedTensor>, PredictionTypes)>;

enum class InstructionSet : std::uint8_t { Baseline, Avx2, Avx512 };

/// That this processor has. Baseline is there everywhere.
[[nodiscard]] bool is_supported(InstructionSet set);
[[nodiscard]] InstructionSet best_instruction_set();

/// Numbers a thread does in one go: 64 Ki, so that a chunk's bytes dwarf what starting it costs.
inline constexpr std::int64_t kCpuPredictionChunk = std::int64_t{1} << 16;

/// Does `chunks` of `tensors` in this thread, by plain stores: what goes past the caches is no
/// faster on one core (bench/prediction_bandwidth), and a small slot is read again soon. Requires:
/// has_prediction(types); is_supported(set); counts that fit the memory.
void predict_on_cpu(std::span<const PredictedTensor> tensors,
                    std::span<const PredictionChunk> chunks,
                    PredictionTypes types,
                    InstructionSet set = best_instruction_set());

}  // namespace xpipe::executor
