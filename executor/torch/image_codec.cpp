#include "executor/torch/image_codec.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

#include <jpeglib.h>
#include <png.h>

#include "executor/torch/data_faults.h"
#include "ir/files.h"

namespace xpipe::executor::nn {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 26U;

std::string too_large(std::uint64_t width, std::uint64_t height) {
  return std::to_string(width) + "x" + std::to_string(height) +
         " pixels; want at least one and at most 2^26";
}

bool is_sane(std::uint64_t width, std::uint64_t height) {
  return width > 0 && height > 0 && width * height <= kMostPixels;
}

/// [height, width, 3] to [3, height, width].
RgbImage by_channel(std::uint32_t height,
                    std::uint32_t width,
                    const std::vector<std::uint8_t>& interleaved) {
  RgbImage image{.height = height, .width = width, .pixels = {}};
  const std::size_t area = std::size_t{height} * width;
  image.pixels.resize(3 * area);
  for (std::size_t i = 0; i < area; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      image.pixels[c * area + i] = interleaved[3 * i + c];
    }
  }
  return image;
}

/// libjpeg calls back where it fails, and must not be returned to: it is left by a jump.
struct JpegFaults {
  jpeg_error_mgr base;
  std::jmp_buf jump;
  std::array<char, JMSG_LENGTH_MAX> message;
};

[[noreturn]] void leave(j_common_ptr decoder) {
  auto* faults = reinterpret_cast<JpegFaults*>(decoder->err);
  faults->base.format_message(decoder, faults->message.data());
  std::longjmp(faults->jump, 1);
}

/// Level -1 is a warning, such as "premature end of JPEG file": a picture that is not what it was.
void leave_on_warning(j_common_ptr decoder, int level) {
  if (level < 0) {
    leave(decoder);
  }
}

/// Nothing here has a destructor: the jump passes over it. `rows` is the caller's.
bool decode_jpeg(const std::string& bytes,
                 jpeg_decompress_struct& decoder,
                 JpegFaults& faults,
                 std::vector<std::uint8_t>& rows) {
  decoder.err = jpeg_std_error(&faults.base);
  faults.base.error_exit = leave;
  faults.base.emit_message = leave_on_warning;
  if (setjmp(faults.jump) != 0) {  // NOLINT(cert-err52-cpp): libjpeg's documented way
    return false;
  }
  jpeg_create_decompress(&decoder);
  jpeg_mem_src(&decoder, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&decoder, TRUE);
  decoder.out_color_space = JCS_RGB;
  if (!is_sane(decoder.image_width, decoder.image_height)) {
    return true;  // the caller looks at the sizes
  }
  jpeg_start_decompress(&decoder);
  rows.resize(std::size_t{3} * decoder.output_width * decoder.output_height);
  while (decoder.output_scanline < decoder.output_height) {
    JSAMPROW row = rows.data() + std::size_t{3} * decoder.output_width * decoder.output_scanline;
    jpeg_read_scanlines(&decoder, &row, 1);
  }
  jpeg_finish_decompress(&decoder);
  return true;
}

ir::Result<RgbImage> read_jpeg(const fs::path& file, const std::string& bytes) {
  jpeg_decompress_struct decoder{};
  JpegFaults faults{};
  std::vector<std::uint8_t> rows;
  const bool is_read = decode_jpeg(bytes, decoder, faults, rows);
  const std::uint32_t width = decoder.image_width;
  const std::uint32_t height = decoder.image_height;
  jpeg_destroy_decompress(&decoder);
  if (!is_read) {
    return broken(file, "bad-jpeg", std::string("not a whole JPEG: ") + faults.message.data());
  }
  if (!is_sane(width, height)) {
    return broken(file, "bad-size", too_large(width, height));
  }
  return by_channel(height, width, rows);
}

ir::Result<RgbImage> read_png(const fs::path& file, const std::string& bytes) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const auto fault = [&] {
    return broken(file, "bad-png", std::string("not a whole PNG: ") + image.message);
  };
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) {
    return fault();
  }
  if (!is_sane(image.width, image.height)) {
    const std::string what = too_large(image.width, image.height);
    png_image_free(&image);
    return broken(file, "bad-size", what);
  }
  image.format = PNG_FORMAT_RGB;
  std::vector<std::uint8_t> rows(PNG_IMAGE_SIZE(image));
  const png_color black{};
  if (png_image_finish_read(&image, &black, rows.data(), 0, nullptr) == 0) {
    return fault();
  }
  return by_channel(image.height, image.width, rows);
}

}  // namespace

ir::Result<RgbImage> read_image(const fs::path& file) {
  const ir::Result<std::string> bytes = ir::read_file(file.string());
  if (!bytes.ok()) {
    return bytes.error();
  }
  if (bytes.value().starts_with("\xff\xd8\xff")) {
    return read_jpeg(file, bytes.value());
  }
  if (bytes.value().starts_with("\x89PNG\r\n\x1a\n")) {
    return read_png(file, bytes.value());
  }
  return broken(file, "not-an-image", "begins like neither a JPEG nor a PNG file");
}

RgbImage resized_to_square(const RgbImage& image, std::uint32_t side) {
  const double scale = static_cast<double>(std::min(image.height, image.width)) / side;
  const double reach = std::max(scale, 1.0);  // a pixel of the result covers as much

  struct Weights {
    std::size_t first;
    std::vector<double> of;
  };

  const auto weights_of = [&](std::uint32_t size) {
    const double margin = (size - scale * side) / 2.0;
    std::vector<Weights> all;
    all.reserve(side);
    for (std::uint32_t i = 0; i < side; ++i) {
      const double centre = margin + (i + 0.5) * scale;
      const double low = std::max(0.0, std::floor(centre - reach + 0.5));
      const double high = std::min<double>(size, std::floor(centre + reach + 0.5));
      Weights& weights = all.emplace_back(Weights{static_cast<std::size_t>(low), {}});
      double sum = 0.0;
      for (double x = low; x < high; x += 1.0) {
        weights.of.push_back(std::max(0.0, 1.0 - std::abs(x + 0.5 - centre) / reach));
        sum += weights.of.back();
      }
      for (double& weight : weights.of) {
        weight /= sum;
      }
    }
    return all;
  };
  const std::vector<Weights> rows = weights_of(image.height);
  const std::vector<Weights> columns = weights_of(image.width);
  RgbImage small{.height = side, .width = side, .pixels = {}};
  small.pixels.reserve(std::size_t{3} * side * side);
  for (std::size_t c = 0; c < 3; ++c) {
    const std::uint8_t* plane = image.pixels.data() + c * image.height * image.width;
    for (const Weights& row : rows) {
      for (const Weights& column : columns) {
        double sum = 0.0;
        for (std::size_t y = 0; y < row.of.size(); ++y) {
          const std::uint8_t* line = plane + (row.first + y) * image.width + column.first;
          for (std::size_t x = 0; x < column.of.size(); ++x) {
            sum += row.of[y] * column.of[x] * line[x];
          }
        }
        small.pixels.push_back(static_cast<std::uint8_t>(std::clamp(std::lround(sum), 0L, 255L)));
      }
    }
  }
  return small;
}

bool has_image_suffix(std::string_view name) {
  std::string suffix = fs::path(name).extension().string();
  std::ranges::transform(suffix, suffix.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  return suffix == ".jpg" || suffix == ".jpeg" || suffix == ".png";
}

}  // namespace xpipe::executor::nn
