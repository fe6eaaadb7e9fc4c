#include "app/sweep_file.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include "app/set_up_evaluator.h"
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/files.h"

namespace xpipe::app {

namespace {

using Json = nlohmann::ordered_json;

std::string system_message() {
  return std::generic_category().message(errno);
}

ir::Error refuse(const std::string& path, std::string message) {
  return ir::make_error(ir::ErrorKind::Usage, "sweep-file", path, std::move(message));
}

/// The whole lines of a sweep's file.
struct Lines {
  std::vector<std::string> whole;
  std::size_t bytes = 0;  ///< up to the end of the last whole line
  bool torn = false;      ///< something stands after it
};

Lines lines_of(const std::string& content) {
  Lines lines;
  while (lines.bytes < content.size()) {
    const std::size_t end = content.find('\n', lines.bytes);
    if (end == std::string::npos) {
      lines.torn = true;
      break;
    }
    lines.whole.push_back(content.substr(lines.bytes, end - lines.bytes));
    lines.bytes = end + 1;
  }
  return lines;
}

/// What the first line of another sweep has that this one's has not: "axes", "files", ...
std::string difference(const std::string& found, const std::string& expected) {
  const Json theirs = Json::parse(found, nullptr, false);
  const Json ours = Json::parse(expected);
  if (!theirs.is_object() || !theirs.contains("format") || theirs["format"] != ours["format"]) {
    return "";
  }
  std::string keys;
  for (const auto& [key, value] : ours.items()) {
    if (!theirs.contains(key) || theirs[key] != value) {
      keys += (keys.empty() ? "" : ", ") + key;
    }
  }
  return keys.empty() ? "its first line" : keys;
}

/// Errors: Usage when `line` is not what the record of set-up `i` may be.
ir::Status check_record(const std::string& path,
                        const SweepAxes& axes,
                        std::uint64_t i,
                        const std::string& line) {
  if (i >= axes.set_ups()) {
    return refuse(path, fmt::format("line {} is one more than this sweep's {} set-ups have; "
                                    "remove it, or choose another file",
                                    i + 2, axes.set_ups()));
  }
  const Json json = Json::parse(line, nullptr, false);
  if (!line.starts_with(record_head(axes, i) + ",") || !json.is_object()) {
    return refuse(path, fmt::format("line {} is not the record of set-up {} of this sweep; remove "
                                    "it and what follows, or choose another file",
                                    i + 2, i));
  }
  return {};
}

}  // namespace

std::string sweep_header(const SweepAxes& axes, const SweepInputs& inputs) {
  Json options = Json::object();
  for (const SweepAxis& axis : axes.axes()) {
    for (std::size_t i = 0; i < axis.values.size(); ++i) {
      options[axis.key].push_back(axis.shown(i));
    }
  }
  Json files = Json::array();
  for (const SweepInputs::FileFacts& file : inputs.files()) {
    files.push_back({{"path", file.path}, {"bytes", file.bytes}, {"crc32", file.crc32}});
  }
  const Json header = {
      {"kind", "sweep"},          {"format", "xpipe.sweep"},   {"version", 1},
      {"xpipe", XPIPE_VERSION},   {"set_ups", axes.set_ups()}, {"options", std::move(options)},
      {"files", std::move(files)}};
  return header.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

ir::Result<SweepFile> SweepFile::open(const std::string& path,
                                      const SweepAxes& axes,
                                      const std::string& header) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return refuse(path, "cannot be written: " + system_message());
  }
  SweepFile file(path, descriptor);
  struct stat facts = {};
  if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return refuse(path, "is not a file; records need one to go on from (--json prints them)");
  }
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return refuse(path, "is being written by another process; wait for it, or choose another file");
  }
  const ir::Result<std::string> content = ir::read_file(path);
  if (!content.ok()) {
    return content.error();
  }
  Lines lines = lines_of(content.value());
  const bool nothing_yet = lines.whole.empty() && header.starts_with(content.value());
  if (!nothing_yet) {
    if (lines.whole.empty() || lines.whole.front() + "\n" != header) {
      const std::string found = lines.whole.empty() ? "" : difference(lines.whole.front(), header);
      return refuse(path,
                    found.empty()
                        ? "is there and is not the file of a sweep; choose another one"
                        : fmt::format("holds another sweep: {} differ; choose another file, or "
                                      "remove this one",
                                      found));
    }
    for (std::size_t i = 1; i < lines.whole.size(); ++i) {
      if (ir::Status status = check_record(path, axes, i - 1, lines.whole[i]); !status.ok()) {
        return status.error();
      }
      file.records_.push_back(std::move(lines.whole[i]));
    }
  }
  if (ftruncate(descriptor, static_cast<off_t>(lines.bytes)) != 0 ||
      lseek(descriptor, 0, SEEK_END) < 0) {
    return refuse(path, "cannot be written: " + system_message());
  }
  if (nothing_yet) {
    if (ir::Status status = file.append(header); !status.ok()) {
      return status.error();
    }
  }
  return file;
}

SweepFile::SweepFile(SweepFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      records_(std::move(other.records_)) {}

SweepFile::~SweepFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

ir::Status SweepFile::append(std::string_view lines) {
  while (!lines.empty()) {
    const ssize_t count = write(descriptor_, lines.data(), lines.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return ir::make_error(ir::ErrorKind::Runtime, "file-write", path_, system_message());
    }
    lines.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

}  // namespace xpipe::app
