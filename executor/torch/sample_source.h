// Where training gets its samples from, by number: the seam between data (files, memory, text) and
// everything that trains. What a sample is depends on (source, epoch, number) alone; augmentations
// included, so that no order of asking, policy or number of stages changes a thing.
#pragma once

#include <cstdint>
#include <span>

#include <torch/torch.h>

#include "executor/torch/model.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

/// Thread-safety: const functions may be called from several threads at once.
class SampleSource {
 public:
  SampleSource() = default;
  SampleSource(const SampleSource&) = default;
  SampleSource(SampleSource&&) = default;
  SampleSource& operator=(const SampleSource&) = default;
  SampleSource& operator=(SampleSource&&) = default;
  virtual ~SampleSource() = default;

  /// How many samples there are.
  [[nodiscard]] virtual std::uint32_t count() const = 0;

  /// The inputs of `samples` in epoch `epoch`, in that order: [samples, channels, height, width],
  /// float and normalized, or [samples, sequence], int64, of text. Errors: BadInput, naming the
  /// file.
  [[nodiscard]] virtual ir::Result<torch::Tensor> input_batch(
      std::uint64_t epoch, std::span<const std::uint32_t> samples) const = 0;

  /// Their labels: [samples], or [samples, sequence] of text; int64.
  [[nodiscard]] virtual torch::Tensor label_batch(std::span<const std::uint32_t> samples) const = 0;

  /// input_batch() only copies memory: not worth a thread that does it ahead.
  [[nodiscard]] virtual bool is_in_memory() const { return false; }
};

}  // namespace xpipe::executor::nn
