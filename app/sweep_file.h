// The records of a sweep in a file: JSON lines that grow as set-ups are answered, and from which an
// interrupted sweep goes on. The one output that is not written beside and renamed: what is there
// is kept.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/sweep_axes.h"
#include "app/sweep_inputs.h"

#include "ir/status.h"

namespace xpipe::app {

/// The first line, LF included: which sweep this is, with every option, and size and checksum of
/// every file it reads.
[[nodiscard]] std::string sweep_header(const SweepAxes& axes, const SweepInputs& inputs);

/// Holds the file open and locked. Not thread-safe.
class SweepFile {
 public:
  /// Opens `path`, makes it if it is not there, and keeps what it holds of this very sweep; a torn
  /// last line (a process that was killed while it wrote) is dropped.
  /// Errors: Usage where it cannot be written, holds another sweep or anything else, or another
  /// process writes it.
  [[nodiscard]] static ir::Result<SweepFile> open(const std::string& path,
                                                  const SweepAxes& axes,
                                                  const std::string& header);

  SweepFile(SweepFile&& other) noexcept;
  SweepFile& operator=(SweepFile&&) = delete;
  SweepFile(const SweepFile&) = delete;
  SweepFile& operator=(const SweepFile&) = delete;
  ~SweepFile();

  /// The records found, without LF: those of set-ups 0, 1, ...
  [[nodiscard]] const std::vector<std::string>& records() const { return records_; }

  /// Writes whole lines at the end. Errors: Runtime, code "file-write".
  ir::Status append(std::string_view lines);

 private:
  SweepFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;
  std::vector<std::string> records_;
};

}  // namespace xpipe::app
