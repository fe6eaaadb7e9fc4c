#include "executor/torch/augment.h"

#include <algorithm>

#include "executor/torch/sample_order.h"

namespace xpipe::executor::nn {

Placement placement_of(const Augmentations& augmentations,
                       std::uint64_t seed,
                       std::uint64_t epoch,
                       std::uint32_t sample) {
  const std::uint64_t random = mixed_seed(mixed_seed(seed ^ kAugmentSeed, epoch), sample);
  constexpr std::uint64_t kPlaces = 2 * kCropPadding + 1;
  Placement placement;
  if (augmentations.crop) {
    placement.row = static_cast<std::int32_t>((random & 0xFFFFU) % kPlaces) - kCropPadding;
    placement.column =
        static_cast<std::int32_t>(((random >> 16U) & 0xFFFFU) % kPlaces) - kCropPadding;
  }
  placement.mirrored = augmentations.flip && ((random >> 32U) & 1U) == 1U;
  return placement;
}

void write_placed(std::span<const std::uint8_t> pixels,
                  const PixelLayout& layout,
                  const Placement& placement,
                  std::span<float> out) {
  const auto height = static_cast<std::int64_t>(layout.height);
  const auto width = static_cast<std::int64_t>(layout.width);
  std::size_t next = 0;
  for (std::size_t c = 0; c < layout.channels; ++c) {
    // All values that a channel's numbers can have: a table of 256 is cheaper than the divisions.
    std::array<float, 256> value{};
    for (std::size_t pixel = 0; pixel < value.size(); ++pixel) {
      value[pixel] = (static_cast<float>(pixel) / 255.0F - layout.mean[c]) / layout.deviation[c];
    }
    const std::uint8_t* plane = pixels.data() + c * layout.height * layout.width;
    for (std::int64_t y = 0; y < height; ++y) {
      const std::int64_t row = y + placement.row;
      const bool is_row = row >= 0 && row < height;
      for (std::int64_t x = 0; x < width; ++x) {
        const std::int64_t column = (placement.mirrored ? width - 1 - x : x) + placement.column;
        const bool is_inside = is_row && column >= 0 && column < width;
        out[next++] = value[is_inside ? plane[row * width + column] : 0];
      }
    }
  }
}

}  // namespace xpipe::executor::nn
