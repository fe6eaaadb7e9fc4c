// How a GPU's prediction is cut into launches: each carries its tensors and its blocks' chunks by
// value, in the 4 KiB that a kernel's arguments may have everywhere, so that no list has to be
// copied to the GPU first. No header of a vendor: the cutting is tested without one.
//
//   tensors  0 1 2 ... 31   where, how many numbers, how far
//   blocks   0 1 2 ... 255  the tensor of each (by its place above) and its chunk within it
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "executor/prediction_kernel.h"

namespace xpipe::executor {

/// Numbers that a block of threads does.
inline constexpr std::int64_t kGpuPredictionChunk = std::int64_t{1} << 15;

struct PredictionLaunch {
  static constexpr std::uint32_t kMostTensors = 32;
  static constexpr std::uint32_t kMostBlocks = 256;

  // Plain arrays: a kernel cannot call std::array's functions.
  PredictedTensor tensors[kMostTensors] = {};
  std::uint8_t tensor_of_block[kMostBlocks] = {};
  std::uint32_t chunk_of_block[kMostBlocks] = {};  ///< times kGpuPredictionChunk
  std::uint32_t tensor_count = 0;
  std::uint32_t blocks = 0;
};

static_assert(sizeof(PredictionLaunch) <= 4096, "a kernel's arguments");

/// Launches that together do every number of `tensors` once. A tensor may go on in the next one.
[[nodiscard]] std::vector<PredictionLaunch> prediction_launches(
    std::span<const PredictedTensor> tensors);

}  // namespace xpipe::executor
