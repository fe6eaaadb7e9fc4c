#include "executor/torch/image_files.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <zlib.h>

#include "executor/torch/data_faults.h"

namespace xpipe::executor::nn {

namespace {

namespace fs = std::filesystem;
using ir::ErrorKind;

struct GzClose {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

using GzFile = std::unique_ptr<gzFile_s, GzClose>;

/// zlib reads plain files as they are and unpacks gzipped ones.
ir::Result<GzFile> open_file(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) {
    return broken(file, "no-file", "there is no such file");
  }
  GzFile stream(gzopen(file.c_str(), "rb"));
  if (!stream) {
    return broken(file, "unreadable", "cannot be opened for reading");
  }
  return stream;
}

/// Up to `size` bytes into `into`; fewer only at the end of the file.
ir::Result<std::size_t> read_bytes(const fs::path& file,
                                   gzFile_s* stream,
                                   std::uint8_t* into,
                                   std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    constexpr std::size_t kChunk = std::size_t{1} << 24U;
    const int got =
        gzread(stream, into + done, static_cast<unsigned>(std::min(size - done, kChunk)));
    int code = Z_OK;
    const char* what = gzerror(stream, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      return broken(file, "bad-gzip",
                    "the gzip stream is damaged or cut short after " + std::to_string(done) +
                        " bytes (" + what + "); fetch the file again");
    }
    if (got == 0) {
      break;
    }
    done += static_cast<std::size_t>(got);
  }
  return done;
}

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return (std::uint32_t{bytes[0]} << 24U) | (std::uint32_t{bytes[1]} << 16U) |
         (std::uint32_t{bytes[2]} << 8U) | std::uint32_t{bytes[3]};
}

std::string hex(const std::uint8_t* bytes, std::size_t count) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += i > 0 ? " " : "";
    text += kDigits[bytes[i] >> 4U];
    text += kDigits[bytes[i] & 15U];
  }
  return text;
}

ir::Status check_labels(const fs::path& file, const std::vector<std::uint8_t>& labels) {
  const auto bad = std::ranges::find_if(labels, [](std::uint8_t l) { return l >= kClasses; });
  if (bad == labels.end()) {
    return {};
  }
  return broken(file, "bad-label",
                "label " + std::to_string(*bad) + " of sample " +
                    std::to_string(bad - labels.begin()) + "; want 0 to " +
                    std::to_string(kClasses - 1));
}

/// The first of the spellings of an MNIST file that is there.
std::optional<fs::path> find_idx(const fs::path& folder, const std::string& set, const char* what) {
  for (const char* separator : {"-", "."}) {
    for (const char* suffix : {"", ".gz"}) {
      fs::path file = folder / (set + separator + what + suffix);
      std::error_code ignored;
      if (fs::exists(file, ignored)) {
        return file;
      }
    }
  }
  return std::nullopt;
}

ir::Result<ImageSet> read_mnist_set(const fs::path& images_file, const fs::path& labels_file) {
  ir::Result<IdxArray> images = read_idx(images_file, 3);
  ir::Result<IdxArray> labels = read_idx(labels_file, 1);
  ir::Error error{ErrorKind::BadInput, {}};
  for (const ir::Status& status : {images.status(), labels.status()}) {
    if (!status.ok()) {
      error.diagnostics.insert(error.diagnostics.end(), status.error().diagnostics.begin(),
                               status.error().diagnostics.end());
    }
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  ImageSet set;
  set.count = images.value().sizes[0];
  set.channels = 1;
  set.height = images.value().sizes[1];
  set.width = images.value().sizes[2];
  set.pixels = std::move(images.value().bytes);
  set.labels = std::move(labels.value().bytes);
  if (set.labels.size() != set.count) {
    return broken(labels_file, "size-mismatch",
                  std::to_string(set.labels.size()) + " labels for the " +
                      std::to_string(set.count) + " images of " + images_file.string());
  }
  if (ir::Status status = check_labels(labels_file, set.labels); !status.ok()) {
    return status.error();
  }
  return set;
}

void append(ir::Error& error, const ir::Error& more) {
  error.diagnostics.insert(error.diagnostics.end(), more.diagnostics.begin(),
                           more.diagnostics.end());
}

ir::Result<ImageFolder> read_mnist(const fs::path& folder) {
  ir::Error error{ErrorKind::BadInput, {}};
  ImageFolder data{.kind = "mnist", .train = {}, .test = {}};
  for (const auto& [name, set] : {std::pair{"train", &data.train}, std::pair{"t10k", &data.test}}) {
    const std::string prefix(name);
    const auto images = find_idx(folder, prefix + "-images", "idx3-ubyte");
    const auto labels = find_idx(folder, prefix + "-labels", "idx1-ubyte");
    for (const auto& [file, wanted] :
         {std::pair{&images, "-images-idx3-ubyte"}, std::pair{&labels, "-labels-idx1-ubyte"}}) {
      if (!file->has_value()) {
        append(error, broken(folder / (prefix + wanted), "no-file",
                             "missing, plain and .gz; an MNIST folder has four files"));
      }
    }
    if (images && labels) {
      ir::Result<ImageSet> read = read_mnist_set(*images, *labels);
      if (read.ok()) {
        *set = std::move(read.value());
      } else {
        append(error, read.error());
      }
    }
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  if (data.train.height != data.test.height || data.train.width != data.test.width) {
    return broken(folder, "size-mismatch", "training and test images differ in size");
  }
  return data;
}

ir::Result<ImageFolder> read_cifar10(const fs::path& folder) {
  ir::Error error{ErrorKind::BadInput, {}};
  ImageFolder data{.kind = "cifar10", .train = {}, .test = {}};
  const auto read = [&](const std::string& name, ImageSet& set) {
    if (ir::Status status = read_cifar10_file(folder / name, set); !status.ok()) {
      append(error, status.error());
    }
  };
  for (int i = 1; i <= 5; ++i) {
    read("data_batch_" + std::to_string(i) + ".bin", data.train);
  }
  read("test_batch.bin", data.test);
  if (!error.diagnostics.empty()) {
    return error;
  }
  return data;
}

}  // namespace

ir::Result<IdxArray> read_idx(const fs::path& file, std::uint32_t dimensions) {
  ir::Result<GzFile> opened = open_file(file);
  if (!opened.ok()) {
    return opened.error();
  }
  gzFile_s* stream = opened.value().get();
  std::array<std::uint8_t, 4 + 4 * 255> header{};
  const std::size_t header_size = 4 + std::size_t{4} * dimensions;
  ir::Result<std::size_t> got = read_bytes(file, stream, header.data(), header_size);
  if (!got.ok()) {
    return got.error();
  }
  const std::array<std::uint8_t, 4> magic{0, 0, 8, static_cast<std::uint8_t>(dimensions)};
  if (got.value() < 4 || !std::equal(magic.begin(), magic.end(), header.begin())) {
    return broken(file, "bad-magic",
                  "begins with '" + hex(header.data(), std::min<std::size_t>(got.value(), 4)) +
                      "'; an IDX file of unsigned bytes with " + std::to_string(dimensions) +
                      " dimension(s) begins with '" + hex(magic.data(), 4) + "'");
  }
  if (got.value() < header_size) {
    return broken(file, "truncated", "ends within its header");
  }
  IdxArray array;
  std::uint64_t bytes = 1;
  std::string shape;
  for (std::uint32_t d = 0; d < dimensions; ++d) {
    const std::uint32_t size = big_endian(header.data() + 4 + std::size_t{4} * d);
    array.sizes.push_back(size);
    bytes = bytes > kMostDataBytes ? bytes : bytes * size;  // at most 2^31 * 2^32: no overflow
    shape += (d > 0 ? " x " : "") + std::to_string(size);
  }
  if (bytes == 0 || bytes > kMostDataBytes) {
    return broken(file, "bad-size",
                  "its header says " + shape + "; want no zero and at most 2^31 bytes in all");
  }
  // As it comes, in growing pieces: a header that lies does not make us allocate what it says.
  constexpr std::size_t kLeastPiece = std::size_t{1} << 14U;
  while (array.bytes.size() < bytes) {
    const std::size_t before = array.bytes.size();
    array.bytes.resize(std::min<std::size_t>(bytes, before + std::max(before, kLeastPiece)));
    got = read_bytes(file, stream, array.bytes.data() + before, array.bytes.size() - before);
    if (!got.ok()) {
      return got.error();
    }
    if (before + got.value() < array.bytes.size()) {
      return broken(file, "truncated",
                    "ends after " + std::to_string(before + got.value()) + " of the " +
                        std::to_string(bytes) + " bytes that its header says (" + shape + ")");
    }
  }
  std::uint8_t more = 0;
  got = read_bytes(file, stream, &more, 1);  // also checks the sum at the end of a gzip stream
  if (!got.ok()) {
    return got.error();
  }
  if (got.value() != 0) {
    return broken(file, "trailing-bytes",
                  "goes on after the " + std::to_string(bytes) + " bytes that its header says (" +
                      shape + ")");
  }
  return array;
}

ir::Status read_cifar10_file(const fs::path& file, ImageSet& set) {
  constexpr std::size_t kPixels = std::size_t{3} * 32 * 32;
  constexpr std::size_t kRecord = 1 + kPixels;
  ir::Result<GzFile> opened = open_file(file);
  if (!opened.ok()) {
    return opened.error();
  }
  std::error_code ignored;
  const std::uintmax_t size = fs::file_size(file, ignored);
  if (size == 0 || size % kRecord != 0 || size > kMostDataBytes) {
    return broken(file, "bad-size",
                  std::to_string(size) + " bytes; want a multiple of the " +
                      std::to_string(kRecord) + " bytes of a record, and at most 2^31");
  }
  std::vector<std::uint8_t> bytes(size);
  const ir::Result<std::size_t> got =
      read_bytes(file, opened.value().get(), bytes.data(), bytes.size());
  if (!got.ok()) {
    return got.error();
  }
  if (got.value() != size) {
    return broken(file, "truncated", "ends after " + std::to_string(got.value()) + " bytes");
  }
  set.channels = 3;
  set.height = 32;
  set.width = 32;
  std::vector<std::uint8_t> labels;
  for (std::size_t at = 0; at < size; at += kRecord) {
    labels.push_back(bytes[at]);
    set.pixels.insert(set.pixels.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at + 1),
                      bytes.begin() + static_cast<std::ptrdiff_t>(at + kRecord));
  }
  if (ir::Status status = check_labels(file, labels); !status.ok()) {
    return status;
  }
  set.labels.insert(set.labels.end(), labels.begin(), labels.end());
  set.count += static_cast<std::uint32_t>(labels.size());
  return {};
}

ir::Result<ImageFolder> read_image_folder(const fs::path& folder) {
  std::error_code fault;
  if (!fs::is_directory(folder, fault)) {
    return broken(folder, "no-folder", "there is no such folder");
  }
  bool mnist = false;
  bool cifar = false;
  for (fs::directory_iterator entry(folder, fault), end; !fault && entry != end;
       entry.increment(fault)) {
    const std::string name = entry->path().filename().string();
    mnist = mnist || name.find("-images") != std::string::npos ||
            name.find("-labels") != std::string::npos;
    cifar = cifar || name.starts_with("data_batch_") || name == "test_batch.bin";
  }
  if (fault) {
    return broken(folder, "unreadable", "cannot be listed: " + fault.message());
  }
  if (mnist == cifar) {
    return broken(folder, mnist ? "two-kinds" : "unknown-data",
                  std::string(mnist ? "holds both MNIST's and CIFAR-10's names"
                                    : "holds no data that XPipe knows") +
                      "; want train-images-idx3-ubyte and its companions (MNIST), "
                      "data_batch_1.bin and its companions (CIFAR-10), or a folder of JPEG or PNG "
                      "images a class (Tiny ImageNet: below train/)");
  }
  return mnist ? read_mnist(folder) : read_cifar10(folder);
}

}  // namespace xpipe::executor::nn
