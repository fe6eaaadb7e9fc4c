// Whole files: read at once, and written so that nothing is ever left half written. What goes wrong
// is told with the path and the system's own words.
#pragma once

#include <string>
#include <string_view>

#include "ir/status.h"

namespace xpipe::ir {

/// Errors: BadInput, code "file-read" (missing, a directory, not permitted, ...).
[[nodiscard]] Result<std::string> read_file(const std::string& path);

/// Replaces `path` whole: written beside it under a new name, flushed to the disk, renamed. On
/// failure the old file is untouched and nothing is left beside it. A symbolic link keeps pointing
/// where it does; a device or a pipe is written to directly. Errors: Runtime, code "file-write".
Status write_file(const std::string& path, std::string_view content);

/// To be asked before the work whose result write_file() will write: the directory is there and can
/// be written to, the target is no directory and, if it is there, may be written. Leaves nothing
/// behind. Errors: Usage, code "file-write". No promise: a disk may still fill up.
Status check_writable(const std::string& path);

}  // namespace xpipe::ir
