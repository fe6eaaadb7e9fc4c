// A labelled data set as the trainer takes it: two sources of samples, and what the model must
// know.
//
//   MNIST, CIFAR-10   in memory; augmented, pixels are placed as they are asked for
//   class folders     decoded as they are asked for (a loader's thread does it ahead)
//   text              in memory; the last tenth of the samples is the test
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "executor/torch/data_options.h"
#include "executor/torch/image_files.h"
#include "executor/torch/sample_order.h"
#include "executor/torch/sample_source.h"

namespace xpipe::executor::nn {

/// Samples that lie in memory as the model takes them.
struct Samples final : SampleSource {
  torch::Tensor inputs;  ///< [count, ...]
  torch::Tensor labels;  ///< [count] or [count, sequence], int64

  [[nodiscard]] std::uint32_t count() const override {
    return static_cast<std::uint32_t>(labels.defined() ? labels.size(0) : 0);
  }

  [[nodiscard]] ir::Result<torch::Tensor> input_batch(
      std::uint64_t epoch, std::span<const std::uint32_t> samples) const override;
  [[nodiscard]] torch::Tensor label_batch(std::span<const std::uint32_t> samples) const override;

  [[nodiscard]] bool is_in_memory() const override { return true; }
};

struct Dataset {
  std::string kind;  ///< "mnist", "cifar10", "tiny-imagenet", "image-folder", "text"
  SampleShape shape;
  std::int64_t classes = 0;  ///< of text the vocabulary
  std::unique_ptr<SampleSource> train;
  std::unique_ptr<SampleSource> test;
};

/// What lies at `path`, told by content: MNIST's or CIFAR-10's files, class folders of JPEG and PNG
/// images, or a text file. `sequence`: tokens a sample of the text that the model takes, 0 for a
/// model of images. `seed`: of the augmentations.
/// Errors: BadInput, naming every file that is missing or broken; Usage for options that the data
/// cannot follow.
[[nodiscard]] ir::Result<Dataset> open_dataset(const std::string& path,
                                               const DataOptions& options,
                                               std::uint32_t sequence,
                                               std::uint64_t seed);

/// (pixel / 255 - mean) / deviation by channel, with the constants of the whole training sets:
/// MNIST 0.1307, 0.3081; CIFAR-10 (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616); class
/// folders as ImageNet, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225).
[[nodiscard]] PixelLayout pixel_layout(const std::string& kind,
                                       std::uint32_t channels,
                                       std::uint32_t height,
                                       std::uint32_t width);

/// All of `images`, normalized so.
[[nodiscard]] Samples normalized(const ImageSet& images, const std::string& kind);

/// The rows `rows` of `source`, gathered.
[[nodiscard]] torch::Tensor gather(const torch::Tensor& source,
                                   std::span<const std::uint32_t> rows);

/// The rows order[range] of `source`: one micro-batch's inputs or labels.
[[nodiscard]] torch::Tensor gather(const torch::Tensor& source,
                                   const std::vector<std::uint32_t>& order,
                                   const SampleRange& range);

}  // namespace xpipe::executor::nn
