// The inputs of one segment's micro-batches, fetched ahead of the first stage by a thread of its
// own where that is worth it (executor/torch/prefetcher.h).
//
//   files -> source -> [loader's thread] -> at most 4 micro-batches -> first stage's forward
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include <torch/torch.h>

#include "executor/torch/prefetcher.h"
#include "executor/torch/sample_source.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

/// Thread-safety: input() from any thread, each micro-batch once; begin() while nobody is in it.
class InputLoader {
 public:
  /// `source` outlives the loader. Nobody waits longer than `time_out` for a micro-batch.
  explicit InputLoader(const SampleSource& source,
                       std::chrono::milliseconds time_out = std::chrono::minutes(5));

  /// `micro_batches`: the samples of each. `order`: the micro-batches that this process will ask
  /// for, in the order it will. The thread starts with the first question, so a process that asks
  /// none has none.
  void begin(std::uint64_t epoch,
             std::vector<std::vector<std::uint32_t>> micro_batches,
             std::vector<std::size_t> order);

  /// The input of micro-batch `j`, by its number in begin(). Errors: the source's; Runtime for a
  /// time-out.
  [[nodiscard]] ir::Result<torch::Tensor> input(std::size_t j);

 private:
  const SampleSource& source_;
  std::uint64_t epoch_ = 0;
  std::vector<std::vector<std::uint32_t>> micro_batches_;
  std::vector<std::size_t> order_;
  std::vector<torch::Tensor> loaded_;  ///< by micro-batch
  std::mutex mutex_;
  bool running_ = false;
  Prefetcher prefetcher_;  ///< last: its thread ends before what it writes to
};

}  // namespace xpipe::executor::nn
