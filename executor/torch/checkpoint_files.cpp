#include "executor/torch/checkpoint_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "ir/files.h"

namespace xpipe::executor::nn {

namespace {

namespace fs = std::filesystem;
using ir::ErrorKind;

constexpr std::string_view kPrefix = "mini-batch-";
constexpr std::string_view kNew = ".new-";
constexpr std::string_view kOld = ".old-";
constexpr std::size_t kDigits = 9;

std::string joined(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

ir::Error lost(const std::string& path, const std::string& what) {
  return ir::make_error(ErrorKind::Runtime, "checkpoint-not-written", path,
                        what + "; the checkpoints before it are whole and can be resumed from");
}

ir::Error not_written(const std::string& path, const std::string& why) {
  return lost(path, "cannot be written: " + why);
}

ir::Error not_written(const std::string& path, const ir::Status& status) {
  return lost(path, status.error().diagnostics.front().message);
}

bool is_checkpoint_name(std::string_view name) {
  return name.starts_with(kPrefix) && name.size() >= kPrefix.size() + kDigits &&
         name.size() <= kPrefix.size() + 19 &&
         std::ranges::all_of(name.substr(kPrefix.size()),
                             [](char c) { return c >= '0' && c <= '9'; });
}

/// Names in `folder` for which `wanted` holds; of equal length by text, so by number.
template <typename Wanted>
std::vector<std::string> names_in(const std::string& folder, Wanted wanted) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (wanted(name)) {
      names.push_back(std::move(name));
    }
  }
  std::ranges::sort(names, [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  return names;
}

/// A folder's entries reach the disk; a file system that cannot do that still has the files.
void flush_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
}

/// A checkpoint loses its name first, so that one half removed is never taken for a whole one.
void remove_checkpoint(const std::string& folder, const std::string& name) {
  const std::string old = joined(folder, std::string(kOld) + name);
  std::error_code ignored;
  fs::remove_all(old, ignored);
  fs::rename(joined(folder, name), old, ignored);
  fs::remove_all(old, ignored);
}

/// What can be done about `checkpoint` when it is damaged.
std::string take_the_one_before(const std::string& checkpoint) {
  const fs::path path = fs::path(checkpoint).lexically_normal();
  const fs::path folder = path.parent_path();
  const std::string name = path.filename().string();
  std::string before;
  for (const std::string& other : checkpoints_in(folder.string())) {
    if (other == name) {
      break;
    }
    before = other;
  }
  return before.empty() ? "there is none before it in " + folder.string()
                        : "take the one before with --resume " + joined(folder.string(), before);
}

}  // namespace

std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  }
  return hash;
}

std::string checkpoint_name(std::uint64_t mini_batches) {
  const std::string digits = std::to_string(mini_batches);
  return std::string(kPrefix) +
         std::string(digits.size() < kDigits ? kDigits - digits.size() : 0, '0') + digits;
}

std::vector<std::string> checkpoints_in(const std::string& folder) {
  return names_in(folder, is_checkpoint_name);
}

ir::Result<std::string> find_checkpoint(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(joined(path, "manifest.json"), ignored)) {
    return path;
  }
  const std::vector<std::string> names = checkpoints_in(path);
  if (!names.empty()) {
    return joined(path, names.back());
  }
  return ir::make_error(ErrorKind::BadInput, "no-checkpoint", path,
                        fs::is_directory(path, ignored)
                            ? "holds no checkpoint: expected folders such as " + checkpoint_name(54)
                            : "is no folder: expected what --checkpoint wrote");
}

ir::Result<CheckpointManifest> read_manifest(const std::string& checkpoint) {
  const std::string path = joined(checkpoint, "manifest.json");
  const ir::Result<std::string> text = ir::read_file(path);
  ir::Result<CheckpointManifest> manifest =
      text.ok() ? manifest_from_json(text.value(), path) : text.error();
  if (manifest.ok()) {
    return manifest;
  }
  ir::Error error = manifest.error();
  error.diagnostics.push_back({"checkpoint-damaged", checkpoint, take_the_one_before(checkpoint)});
  return error;
}

ir::Result<std::string> read_layer_file(const std::string& checkpoint, const LayerFile& layer) {
  const std::string path = joined(checkpoint, layer.file);
  ir::Result<std::string> bytes = ir::read_file(path);
  const auto damaged = [&](const std::string& what) {
    return ir::make_error(ErrorKind::BadInput, "checkpoint-damaged", path,
                          what + "; " + take_the_one_before(checkpoint));
  };
  if (!bytes.ok()) {
    return damaged(bytes.error().diagnostics.front().message);
  }
  const auto size = static_cast<ir::Bytes>(bytes.value().size());
  if (size != layer.bytes) {
    return damaged("has " + std::to_string(size) + " bytes, its manifest says " +
                   std::to_string(layer.bytes));
  }
  if (fnv1a(bytes.value()) != layer.checksum) {
    return damaged("is not what was written: its checksum differs from its manifest's");
  }
  return bytes;
}

ir::Result<CheckpointFolder> CheckpointFolder::open(const std::string& path, std::uint32_t keep) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path)) {
    return ir::make_error(ErrorKind::Usage, "checkpoint-folder", path,
                          "cannot be made: " + (error ? error.message() : "it is no folder"));
  }
  if (ir::Status status = ir::check_writable(joined(path, "manifest.json")); !status.ok()) {
    return status.error();
  }
  for (const std::string& name : names_in(path, [](const std::string& found) {
         return found.starts_with(std::string(kNew) + std::string(kPrefix)) ||
                found.starts_with(std::string(kOld) + std::string(kPrefix));
       })) {
    fs::remove_all(joined(path, name), error);
  }
  return CheckpointFolder(path, keep);
}

void CheckpointFolder::replace_after(const std::string& last) {
  others_ = checkpoints_in(path_);
  const auto found = std::ranges::find(others_, last);
  if (found != others_.end()) {
    others_.erase(others_.begin(), found + 1);
  }
}

ir::Result<std::string> CheckpointFolder::begin(std::uint64_t mini_batches) {
  std::string begun = joined(path_, std::string(kNew) + checkpoint_name(mini_batches));
  std::error_code error;
  fs::remove_all(begun, error);
  if (!fs::create_directory(begun, error)) {
    return not_written(begun, error.message());
  }
  return begun;
}

ir::Result<LayerFile> CheckpointFolder::write_layer(const std::string& begun,
                                                    std::size_t index,
                                                    std::string_view layer,
                                                    std::string_view bytes) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "layer-%03zu.pt", index);
  LayerFile file{.layer = std::string(layer),
                 .file = name.data(),
                 .bytes = static_cast<ir::Bytes>(bytes.size()),
                 .checksum = fnv1a(bytes)};
  const std::string path = joined(begun, file.file);
  if (ir::Status status = ir::write_file(path, bytes); !status.ok()) {
    return not_written(path, status);
  }
  return file;
}

ir::Status CheckpointFolder::commit(const std::string& begun, const CheckpointManifest& manifest) {
  const std::string path = joined(begun, "manifest.json");
  if (ir::Status status = ir::write_file(path, manifest_to_json(manifest)); !status.ok()) {
    return not_written(path, status);
  }
  const std::string name = checkpoint_name(manifest.mini_batches);
  const std::string target = joined(path_, name);
  std::error_code error;
  if (fs::exists(target, error)) {
    // The same place of the same run once more, or another run's: both are whole, and change names.
    if (::renameat2(AT_FDCWD, begun.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
      fs::remove_all(begun, error);
      error.clear();
    } else {
      remove_checkpoint(path_, name);
      fs::rename(begun, target, error);
    }
  } else {
    fs::rename(begun, target, error);
  }
  if (error) {
    return not_written(target, error.message());
  }
  flush_folder(path_);
  for (const std::string& other : std::exchange(others_, {})) {
    if (other != name) {
      remove_checkpoint(path_, other);
    }
  }
  const std::vector<std::string> names = checkpoints_in(path_);
  for (std::size_t i = 0; i + keep_ < names.size(); ++i) {
    remove_checkpoint(path_, names[i]);
  }
  return {};
}

void CheckpointFolder::abandon(const std::string& begun) {
  std::error_code ignored;
  fs::remove_all(begun, ignored);
}

}  // namespace xpipe::executor::nn
