// Which samples a mini-batch holds, in which order, and how it is cut into micro-batches. Only
// arithmetic, the same on every platform; no torch.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/torch/train_recipe.h"

namespace xpipe::executor::nn {

/// A seed for the `index`-th use of `seed`: splitmix64's output function on
/// seed + (index + 1) * 0x9e3779b97f4a7c15.
[[nodiscard]] std::uint64_t mixed_seed(std::uint64_t seed, std::uint64_t index);

/// The order of `count` samples in epoch `epoch`: Fisher and Yates' shuffle from the last place
/// down, on std::mt19937_64 seeded with mixed_seed(seed ^ kOrderSeed, epoch). A place below `bound`
/// is the generator's next number that is below the largest multiple of `bound`, modulo `bound`.
[[nodiscard]] std::vector<std::uint32_t> epoch_order(std::uint32_t count,
                                                     std::uint64_t seed,
                                                     std::uint64_t epoch);

/// Keeps the order of samples apart from the weights of layers under one seed. ("order" in ASCII.)
inline constexpr std::uint64_t kOrderSeed = 0x6f72646572;

/// Samples [begin, begin + count) of an epoch's order.
struct SampleRange {
  std::uint32_t begin = 0;
  std::uint32_t count = 0;

  bool operator==(const SampleRange&) const = default;
};

/// Mini-batches of one epoch. The last one is smaller when the samples do not divide.
struct EpochBatches {
  std::vector<SampleRange> mini_batches;
  std::uint32_t dropped = 0;  ///< samples
};

/// Requires: batch_size >= 1.
[[nodiscard]] EpochBatches epoch_batches(std::uint32_t samples,
                                         std::uint32_t batch_size,
                                         LastBatch last_batch = LastBatch::Keep);

/// Micro-batch `index` of `mini_batch` cut into `micro_batches`: sizes differ by one at most, the
/// larger ones first (6 in 4: 2, 2, 1, 1). Requires: index < micro_batches <= mini_batch.count.
[[nodiscard]] SampleRange micro_batch_range(const SampleRange& mini_batch,
                                            std::uint32_t micro_batches,
                                            std::uint32_t index);

}  // namespace xpipe::executor::nn
