// One JPEG or PNG file as pixels, through libjpeg and libpng. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "ir/status.h"

namespace xpipe::executor::nn {

struct RgbImage {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::vector<std::uint8_t> pixels;  ///< [3, height, width]
};

/// Told by content, not by name. Grey images become grey RGB; transparent ones lie on black.
/// Errors: BadInput naming `file`: missing, neither of the two, more than 2^26 pixels, and whatever
/// its library complains of, warnings such as data cut short included.
/// Thread-safety: may be called from several threads.
[[nodiscard]] ir::Result<RgbImage> read_image(const std::filesystem::path& file);

/// The shorter side scaled to `side` (bilinear, over the area that a pixel covers), the middle
/// square of it. Requires: side >= 1, an image of at least one pixel.
[[nodiscard]] RgbImage resized_to_square(const RgbImage& image, std::uint32_t side);

/// ".jpg", ".jpeg", ".png", in small or capital letters.
[[nodiscard]] bool has_image_suffix(std::string_view name);

}  // namespace xpipe::executor::nn
