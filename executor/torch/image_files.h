// Labelled images as their files hold them: MNIST's IDX files, plain or gzipped, and CIFAR-10's
// binary version. Strict readers, no torch.
//
//   IDX (yann.lecun.com/exdb/mnist): big-endian 00 00 08 n, n sizes of 4 bytes, then the bytes.
//   CIFAR-10 (cs.toronto.edu/~kriz/cifar.html): records of 1 label and 3 x 32 x 32 bytes, by
//   channel, then row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ir/status.h"

namespace xpipe::executor::nn {

inline constexpr std::uint32_t kClasses = 10;  ///< of both data sets

struct ImageSet {
  std::uint32_t count = 0;
  std::uint32_t channels = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::vector<std::uint8_t> pixels;  ///< [count, channels, height, width]
  std::vector<std::uint8_t> labels;  ///< [count], each below kClasses

  bool operator==(const ImageSet&) const = default;
};

struct ImageFolder {
  std::string kind;  ///< "mnist" or "cifar10"
  ImageSet train;
  ImageSet test;
};

struct IdxArray {
  std::vector<std::uint32_t> sizes;
  std::vector<std::uint8_t> bytes;
};

/// An IDX file of unsigned bytes with `dimensions` sizes, gzipped or not (told by content).
/// Errors: BadInput for anything else: wrong magic, sizes that are zero or absurd (over 2^31 bytes
/// in all), fewer or more bytes than the sizes say, a damaged gzip stream.
[[nodiscard]] ir::Result<IdxArray> read_idx(const std::filesystem::path& file,
                                            std::uint32_t dimensions);

/// One file of CIFAR-10 records, appended to `set`.
ir::Status read_cifar10_file(const std::filesystem::path& file, ImageSet& set);

/// The training and test set of `folder`, told by the names in it: train-images-idx3-ubyte and its
/// three companions (also with '.' before "idx", each plain or .gz, plain first), or
/// data_batch_1.bin to data_batch_5.bin and test_batch.bin.
/// Errors: BadInput, naming every missing or broken file.
[[nodiscard]] ir::Result<ImageFolder> read_image_folder(const std::filesystem::path& folder);

}  // namespace xpipe::executor::nn
