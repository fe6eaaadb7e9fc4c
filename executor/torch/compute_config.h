// In which type, and on which devices, a training computes: plain values, no torch.
//
//   dtype bf16    master weights, moments and accumulated gradients stay float32; slots, the copy
//   of
//                 the master that passes read, activations and their gradients are bfloat16. Batch
//                 norms keep float32 weights and statistics, and the loss is computed in float32.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "executor/prediction_kernel.h"

namespace xpipe::executor::nn {

enum class ComputeType : std::uint8_t { Float32, BFloat16 };

struct ComputeConfig {
  ComputeType dtype = ComputeType::Float32;
  /// GPU of each device of a schedule, device d on gpus[d mod size]; empty: all on the CPU.
  std::vector<std::uint32_t> gpus;
  /// Of those GPUs. None: the CPU's.
  PredictionKernel prediction_kernel;
};

/// "float32", "bf16".
[[nodiscard]] constexpr std::string_view compute_type_name(ComputeType type) {
  return type == ComputeType::BFloat16 ? "bf16" : "float32";
}

/// Bytes of a number that is not a weight.
[[nodiscard]] constexpr std::int64_t compute_type_bytes(ComputeType type) {
  return type == ComputeType::BFloat16 ? 2 : 4;
}

}  // namespace xpipe::executor::nn
