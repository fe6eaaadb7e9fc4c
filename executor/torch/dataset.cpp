#include "executor/torch/dataset.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "executor/torch/image_codec.h"
#include "executor/torch/image_tree.h"
#include "executor/torch/text_corpus.h"

namespace xpipe::executor::nn {

namespace {

namespace fs = std::filesystem;
using ir::ErrorKind;

std::int64_t extent(std::size_t size) {
  return static_cast<std::int64_t>(size);
}

torch::Tensor label_tensor(std::span<const std::uint32_t> samples, const auto& label_of) {
  torch::Tensor labels = torch::empty({extent(samples.size())}, torch::kInt64);
  std::ranges::transform(samples, labels.data_ptr<std::int64_t>(), label_of);
  return labels;
}

/// Place for one micro-batch's images, and the part of one of them.
class ImageBatch {
 public:
  ImageBatch(const PixelLayout& layout, std::size_t samples)
      : layout_(layout),
        tensor_(torch::empty({extent(samples), layout.channels, layout.height, layout.width})) {}

  void write(std::size_t place, std::span<const std::uint8_t> pixels, const Placement& placement) {
    write_placed(pixels, layout_, placement,
                 {tensor_.data_ptr<float>() + place * layout_.size(), layout_.size()});
  }

  [[nodiscard]] torch::Tensor take() && { return std::move(tensor_); }

 private:
  const PixelLayout& layout_;
  torch::Tensor tensor_;
};

/// Images of a file that lie in memory as bytes, augmented.
class AugmentedImages final : public SampleSource {
 public:
  AugmentedImages(ImageSet images,
                  const PixelLayout& layout,
                  const Augmentations& augmentations,
                  std::uint64_t seed)
      : images_(std::move(images)), layout_(layout), augmentations_(augmentations), seed_(seed) {}

  [[nodiscard]] std::uint32_t count() const override { return images_.count; }

  [[nodiscard]] ir::Result<torch::Tensor> input_batch(
      std::uint64_t epoch, std::span<const std::uint32_t> samples) const override {
    ImageBatch batch(layout_, samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      batch.write(i, std::span(images_.pixels).subspan(samples[i] * layout_.size(), layout_.size()),
                  placement_of(augmentations_, seed_, epoch, samples[i]));
    }
    return std::move(batch).take();
  }

  [[nodiscard]] torch::Tensor label_batch(std::span<const std::uint32_t> samples) const override {
    return label_tensor(samples, [&](std::uint32_t sample) { return images_.labels[sample]; });
  }

 private:
  ImageSet images_;
  PixelLayout layout_;
  Augmentations augmentations_;
  std::uint64_t seed_;
};

/// Images in files of their own, decoded when asked for.
class ImageFiles final : public SampleSource {
 public:
  ImageFiles(std::vector<ImageFile> files,
             const PixelLayout& layout,
             const DataOptions& options,
             const Augmentations& augmentations,
             std::uint64_t seed)
      : files_(std::move(files)),
        layout_(layout),
        image_size_(options.image_size),
        augmentations_(augmentations),
        seed_(seed) {}

  [[nodiscard]] std::uint32_t count() const override {
    return static_cast<std::uint32_t>(files_.size());
  }

  [[nodiscard]] ir::Result<torch::Tensor> input_batch(
      std::uint64_t epoch, std::span<const std::uint32_t> samples) const override {
    ImageBatch batch(layout_, samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::string& path = files_[samples[i]].path;
      ir::Result<RgbImage> image = read_image(path);
      if (!image.ok()) {
        return image.error();
      }
      if (image_size_ > 0) {
        image = resized_to_square(image.value(), image_size_);
      }
      const RgbImage& rgb = image.value();
      if (rgb.height != layout_.height || rgb.width != layout_.width) {
        return ir::make_error(ErrorKind::BadInput, "size-mismatch", path,
                              "is " + std::to_string(rgb.width) + "x" + std::to_string(rgb.height) +
                                  ", the first image is " + std::to_string(layout_.width) + "x" +
                                  std::to_string(layout_.height) +
                                  "; bring all to one size with --image-size");
      }
      batch.write(i, rgb.pixels, placement_of(augmentations_, seed_, epoch, samples[i]));
    }
    return std::move(batch).take();
  }

  [[nodiscard]] torch::Tensor label_batch(std::span<const std::uint32_t> samples) const override {
    return label_tensor(samples, [&](std::uint32_t sample) { return files_[sample].label; });
  }

 private:
  std::vector<ImageFile> files_;
  PixelLayout layout_;
  std::uint32_t image_size_;
  Augmentations augmentations_;
  std::uint64_t seed_;
};

ir::Error usage(std::string where, std::string what) {
  return ir::make_error(ErrorKind::Usage, "bad-data-option", std::move(where), std::move(what));
}

ir::Result<Dataset> open_images(const std::string& path,
                                const DataOptions& options,
                                std::uint64_t seed) {
  ir::Result<ImageFolder> folder = read_image_folder(path);
  if (!folder.ok()) {
    return folder.error();
  }
  if (options.image_size > 0) {
    return usage("--image-size", "is for class folders; " + path + " holds images of one size");
  }
  ImageFolder& images = folder.value();
  const PixelLayout layout =
      pixel_layout(images.kind, images.train.channels, images.train.height, images.train.width);
  Dataset data{.kind = images.kind,
               .shape = {layout.channels, layout.height, layout.width},
               .classes = kClasses,
               .train = nullptr,
               .test = std::make_unique<Samples>(normalized(images.test, images.kind))};
  if (options.augmentations.any()) {
    data.train = std::make_unique<AugmentedImages>(std::move(images.train), layout,
                                                   options.augmentations, seed);
  } else {
    data.train = std::make_unique<Samples>(normalized(images.train, images.kind));
  }
  return data;
}

ir::Result<Dataset> open_tree(const std::string& path,
                              const DataOptions& options,
                              std::uint64_t seed) {
  ir::Result<ImageTree> tree = read_image_tree(path);
  if (!tree.ok()) {
    return tree.error();
  }
  // All are as large as the first, which is decoded to see that there are images at all.
  const ir::Result<RgbImage> first = read_image(tree.value().train.front().path);
  if (!first.ok()) {
    return first.error();
  }
  const std::uint32_t side = options.image_size;
  const PixelLayout layout =
      pixel_layout(tree.value().kind, 3, side > 0 ? side : first.value().height,
                   side > 0 ? side : first.value().width);
  return Dataset{.kind = tree.value().kind,
                 .shape = {layout.channels, layout.height, layout.width},
                 .classes = extent(tree.value().classes.size()),
                 .train = std::make_unique<ImageFiles>(std::move(tree.value().train), layout,
                                                       options, options.augmentations, seed),
                 .test = std::make_unique<ImageFiles>(std::move(tree.value().test), layout, options,
                                                      Augmentations{}, seed)};
}

/// Samples [first, last) of a text.
std::unique_ptr<Samples> text_part(const TextCorpus& corpus,
                                   std::uint32_t sequence,
                                   std::uint32_t first,
                                   std::uint32_t last) {
  auto samples = std::make_unique<Samples>();
  const std::int64_t count = std::int64_t{last} - first;
  const auto part = [&](std::size_t shift) {
    torch::Tensor tokens = torch::empty({count, sequence}, torch::kInt64);
    const auto begin =
        corpus.tokens.begin() + static_cast<std::ptrdiff_t>(std::size_t{first} * sequence + shift);
    std::copy_n(begin, tokens.numel(), tokens.data_ptr<std::int64_t>());
    return tokens;
  };
  samples->inputs = part(0);
  samples->labels = part(1);
  return samples;
}

ir::Result<Dataset> open_text(const fs::path& file,
                              const DataOptions& options,
                              std::uint32_t sequence) {
  if (options.augmentations.any() || options.image_size > 0) {
    return usage(options.image_size > 0 ? "--image-size" : "--augment",
                 "is for images, and " + file.string() + " is text");
  }
  const ir::Result<TextCorpus> corpus = read_text_corpus(file, options.tokens);
  if (!corpus.ok()) {
    return corpus.error();
  }
  const std::size_t tokens = corpus.value().tokens.size();
  const std::uint32_t count = text_samples(tokens, sequence);
  if (count < 2) {
    return ir::make_error(ErrorKind::BadInput, "too-short", file.string(),
                          "has " + std::to_string(tokens) + " tokens; want at least " +
                              std::to_string(2 * std::uint64_t{sequence} + 1) +
                              ", two samples of " + std::to_string(sequence) + " (--set sequence)");
  }
  const std::uint32_t held_out = std::max(1U, count / 10);
  return Dataset{.kind = "text",
                 .shape = {.sequence = sequence},
                 .classes = corpus.value().vocabulary,
                 .train = text_part(corpus.value(), sequence, 0, count - held_out),
                 .test = text_part(corpus.value(), sequence, count - held_out, count)};
}

}  // namespace

ir::Result<Dataset> open_dataset(const std::string& path,
                                 const DataOptions& options,
                                 std::uint32_t sequence,
                                 std::uint64_t seed) {
  const fs::path text = text_file_of(path);
  if (sequence > 0) {
    if (text.empty()) {
      return ir::make_error(ErrorKind::BadInput, "no-text", path,
                            "is no .txt file and no folder with one; this model takes text");
    }
    return open_text(text, options, sequence);
  }
  std::error_code ignored;
  if (!text.empty() && fs::is_regular_file(path, ignored)) {
    return usage("--data", path + " is text, and this model takes images; want --model gpt");
  }
  if (is_image_tree(path)) {
    return open_tree(path, options, seed);
  }
  return open_images(path, options, seed);
}

PixelLayout pixel_layout(const std::string& kind,
                         std::uint32_t channels,
                         std::uint32_t height,
                         std::uint32_t width) {
  PixelLayout layout{.channels = channels, .height = height, .width = width};
  if (kind == "mnist") {
    layout.mean = {0.1307F, 0.1307F, 0.1307F};
    layout.deviation = {0.3081F, 0.3081F, 0.3081F};
  } else if (kind == "cifar10") {
    layout.mean = {0.4914F, 0.4822F, 0.4465F};
    layout.deviation = {0.2470F, 0.2435F, 0.2616F};
  } else {
    layout.mean = {0.485F, 0.456F, 0.406F};
    layout.deviation = {0.229F, 0.224F, 0.225F};
  }
  return layout;
}

Samples normalized(const ImageSet& images, const std::string& kind) {
  const PixelLayout layout = pixel_layout(kind, images.channels, images.height, images.width);
  ImageBatch batch(layout, images.count);
  for (std::size_t i = 0; i < images.count; ++i) {
    batch.write(i, std::span(images.pixels).subspan(i * layout.size(), layout.size()), {});
  }
  Samples samples;
  samples.inputs = std::move(batch).take();
  samples.labels = torch::empty({images.count}, torch::kInt64);
  std::ranges::copy(images.labels, samples.labels.data_ptr<std::int64_t>());
  return samples;
}

ir::Result<torch::Tensor> Samples::input_batch(std::uint64_t /*epoch*/,
                                               std::span<const std::uint32_t> samples) const {
  return gather(inputs, samples);
}

torch::Tensor Samples::label_batch(std::span<const std::uint32_t> samples) const {
  return gather(labels, samples);
}

torch::Tensor gather(const torch::Tensor& source, std::span<const std::uint32_t> rows) {
  const torch::Tensor index = torch::empty({extent(rows.size())}, torch::kInt64);
  std::ranges::copy(rows, index.data_ptr<std::int64_t>());
  return source.index_select(0, index);
}

torch::Tensor gather(const torch::Tensor& source,
                     const std::vector<std::uint32_t>& order,
                     const SampleRange& range) {
  return gather(source, std::span(order).subspan(range.begin, range.count));
}

}  // namespace xpipe::executor::nn
