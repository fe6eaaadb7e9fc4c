// Augmentations of small images, as the papers on CIFAR use them (He et al. 2016, section 4.2): a
// crop of the image padded by 4 black pixels a side, and a mirror image every other time. What
// happens to a sample is a function of (seed, epoch, sample) alone: no order of reading, thread or
// policy changes it. Also how pixels become numbers. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace xpipe::executor::nn {

struct Augmentations {
  bool crop = false;
  bool flip = false;

  [[nodiscard]] bool any() const { return crop || flip; }

  bool operator==(const Augmentations&) const = default;
};

inline constexpr std::int32_t kCropPadding = 4;

/// Keeps augmentations apart from the order of samples and the weights. ("augment" in ASCII.)
inline constexpr std::uint64_t kAugmentSeed = 0x6175676d656e74;

/// Where an image's pixel (0, 0) is taken from, and whether it is mirrored.
struct Placement {
  std::int32_t row = 0;     ///< -4 to 4
  std::int32_t column = 0;  ///< -4 to 4
  bool mirrored = false;

  bool operator==(const Placement&) const = default;
};

/// From r = mixed_seed(mixed_seed(seed ^ kAugmentSeed, epoch), sample) (sample_order.h): row =
/// (r mod 2^16) mod 9 - 4, column = (r / 2^16 mod 2^16) mod 9 - 4, mirrored where bit 32 is set.
[[nodiscard]] Placement placement_of(const Augmentations& augmentations,
                                     std::uint64_t seed,
                                     std::uint64_t epoch,
                                     std::uint32_t sample);

struct PixelLayout {
  std::uint32_t channels = 3;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::array<float, 3> mean{};  ///< by channel
  std::array<float, 3> deviation{1, 1, 1};

  [[nodiscard]] std::size_t size() const { return std::size_t{channels} * height * width; }
};

/// (pixel / 255 - mean) / deviation of the placed image; pixels that lie outside are black.
/// Requires: both of layout.size().
void write_placed(std::span<const std::uint8_t> pixels,
                  const PixelLayout& layout,
                  const Placement& placement,
                  std::span<float> out);

}  // namespace xpipe::executor::nn
