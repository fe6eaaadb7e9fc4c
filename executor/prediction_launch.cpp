#include "executor/prediction_launch.h"

#include <optional>

namespace xpipe::executor {

std::vector<PredictionLaunch> prediction_launches(std::span<const PredictedTensor> tensors) {
  std::vector<PredictionLaunch> launches;
  std::optional<std::uint32_t> last;  // tensor of the launch at hand
  for (const PredictionChunk& chunk : prediction_chunks(tensors, kGpuPredictionChunk)) {
    const auto is_full = [&](const PredictionLaunch& launch) {
      return launch.blocks == PredictionLaunch::kMostBlocks ||
             (last != chunk.tensor && launch.tensor_count == PredictionLaunch::kMostTensors);
    };
    if (launches.empty() || is_full(launches.back())) {
      launches.emplace_back();
      last.reset();
    }
    PredictionLaunch& launch = launches.back();
    if (last != chunk.tensor) {
      launch.tensors[launch.tensor_count++] = tensors[chunk.tensor];
      last = chunk.tensor;
    }
    launch.tensor_of_block[launch.blocks] = static_cast<std::uint8_t>(launch.tensor_count - 1);
    launch.chunk_of_block[launch.blocks] =
        static_cast<std::uint32_t>(chunk.begin / kGpuPredictionChunk);
    ++launch.blocks;
  }
  return launches;
}

}  // namespace xpipe::executor
