#include "ir/files.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace xpipe::ir {

namespace {

constexpr int kMaxTries = 100;
constexpr mode_t kNewFileMode = 0666;  // less what the umask takes

/// Closes on the way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}

  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  ~Descriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  [[nodiscard]] int get() const { return fd_; }

  [[nodiscard]] bool ok() const { return fd_ >= 0; }

  /// Some file systems tell of a failed write only here.
  bool close() {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd) == 0;
  }

 private:
  int fd_;
};

std::string reason() {
  return std::generic_category().message(errno);
}

Error failure(ErrorKind kind, const std::string& path, const std::string& message) {
  return make_error(kind, kind == ErrorKind::BadInput ? "file-read" : "file-write", path, message);
}

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return false;
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// Where the bytes go: behind symbolic links, or `path` itself when nothing is there yet.
std::string target_of(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_symlink(path, error)) {
    const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
    if (!error) {
      return target.string();
    }
  }
  return path;
}

std::string directory_of(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  return directory.empty() ? "." : directory;
}

/// A new file beside `target`, open for writing; its name in `name`.
int create_beside(const std::string& target, std::string& name) {
  for (int i = 0; i < kMaxTries; ++i) {
    name = target + ".part-" + std::to_string(::getpid()) + "-" + std::to_string(i);
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kNewFileMode);
    if (fd >= 0 || errno != EEXIST) {
      return fd;
    }
  }
  return -1;
}

Status write_directly(const std::string& path, std::string_view content) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.ok() || !write_all(file.get(), content) || !file.close()) {
    return failure(ErrorKind::Runtime, path, "cannot be written: " + reason());
  }
  return {};
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (!file.ok() || ::fstat(file.get(), &status) != 0) {
    return failure(ErrorKind::BadInput, path, "cannot be read: " + reason());
  }
  if (S_ISDIR(status.st_mode)) {
    return failure(ErrorKind::BadInput, path, "is a directory: expected a file");
  }
  std::string content;
  std::size_t size = 0;
  for (;;) {
    // One byte more than the file has shows its end in the first round.
    const auto known = static_cast<std::size_t>(status.st_size > 0 ? status.st_size : 0);
    content.resize(size < known ? known + 1 : size * 2 + 4096);
    const ssize_t got = ::read(file.get(), content.data() + size, content.size() - size);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return failure(ErrorKind::BadInput, path, "cannot be read: " + reason());
    }
    if (got == 0) {
      content.resize(size);
      return content;
    }
    size += static_cast<std::size_t>(got);
  }
}

Status write_file(const std::string& path, std::string_view content) {
  const std::string target = target_of(path);
  struct stat status = {};
  const bool exists = ::stat(target.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) {
    return failure(ErrorKind::Runtime, path, "is a directory: expected the name of a file");
  }
  if (exists && !S_ISREG(status.st_mode)) {
    return write_directly(target, content);
  }
  std::string name;
  Descriptor file(create_beside(target, name));
  if (!file.ok()) {
    return failure(ErrorKind::Runtime, path, "cannot be written: " + reason());
  }
  const bool mode_kept = !exists || ::fchmod(file.get(), status.st_mode & 07777) == 0;
  if (!mode_kept || !write_all(file.get(), content) || ::fsync(file.get()) != 0 || !file.close() ||
      ::rename(name.c_str(), target.c_str()) != 0) {
    const std::string why = reason();
    ::unlink(name.c_str());
    return failure(ErrorKind::Runtime, path, "cannot be written: " + why);
  }
  // The new name itself must reach the disk; a file system that cannot do that still has the file.
  Descriptor directory(::open(directory_of(target).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.ok()) {
    ::fsync(directory.get());
  }
  return {};
}

Status check_writable(const std::string& path) {
  if (path.empty()) {
    return failure(ErrorKind::Usage, "\"\"", "is an empty name: expected the name of a file");
  }
  const std::string target = target_of(path);
  struct stat status = {};
  if (::stat(target.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) {
      return failure(ErrorKind::Usage, path, "is a directory: expected the name of a file");
    }
    if (::access(target.c_str(), W_OK) != 0) {
      return failure(ErrorKind::Usage, path, "cannot be written: " + reason());
    }
    if (!S_ISREG(status.st_mode)) {
      return {};
    }
  }
  const std::string directory = directory_of(target);
  if (::stat(directory.c_str(), &status) != 0) {
    return failure(ErrorKind::Usage, path,
                   "cannot be written: " + reason() + "; expected the directory " + directory +
                       " to be there");
  }
  // Only creating a file tells for sure: permissions, read-only file systems, quotas.
  std::string name;
  Descriptor file(create_beside(target, name));
  if (!file.ok()) {
    return failure(ErrorKind::Usage, path, "cannot be written: " + reason());
  }
  ::unlink(name.c_str());
  return {};
}

}  // namespace xpipe::ir
