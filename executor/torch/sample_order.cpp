#include "executor/torch/sample_order.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

namespace xpipe::executor::nn {

std::uint64_t mixed_seed(std::uint64_t seed, std::uint64_t index) {
  // Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA'14.
  std::uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31U);
}

std::vector<std::uint32_t> epoch_order(std::uint32_t count,
                                       std::uint64_t seed,
                                       std::uint64_t epoch) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937_64 random(mixed_seed(seed ^ kOrderSeed, epoch));
  for (std::uint64_t place = count; place > 1; --place) {
    // std::uniform_int_distribution differs between standard libraries.
    const std::uint64_t excess = (std::mt19937_64::max() % place + 1) % place;
    std::uint64_t number = random();
    while (number > std::mt19937_64::max() - excess) {
      number = random();
    }
    std::swap(order[place - 1], order[number % place]);
  }
  return order;
}

EpochBatches epoch_batches(std::uint32_t samples, std::uint32_t batch_size, LastBatch last_batch) {
  EpochBatches batches;
  std::uint32_t begin = 0;
  while (begin < samples) {
    const std::uint32_t count = std::min(batch_size, samples - begin);
    if (count < batch_size && last_batch == LastBatch::Drop) {
      batches.dropped = count;
      break;
    }
    batches.mini_batches.push_back({begin, count});
    begin += count;
  }
  return batches;
}

SampleRange micro_batch_range(const SampleRange& mini_batch,
                              std::uint32_t micro_batches,
                              std::uint32_t index) {
  const std::uint32_t small = mini_batch.count / micro_batches;
  const std::uint32_t larger = mini_batch.count % micro_batches;
  return {mini_batch.begin + index * small + std::min(index, larger),
          small + (index < larger ? 1U : 0U)};
}

}  // namespace xpipe::executor::nn
