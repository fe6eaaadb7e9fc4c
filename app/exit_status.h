// How the program ends: the documented exit statuses (design.md §8), and how an error is shown.
#pragma once

#include <string>

#include "ir/status.h"

namespace xpipe::app {

inline constexpr int kExitOk = 0;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitBadInput = 3;
inline constexpr int kExitIllegal = 4;
inline constexpr int kExitRuntime = 5;
inline constexpr int kExitInterrupted = 130;

[[nodiscard]] int exit_status_of(ir::ErrorKind kind);

/// Prints every fault on stderr, prefixed with "xpipe: ", and returns the exit status.
int report_error(const ir::Error& error);

/// A remark for people, on stderr: "xpipe: note: ...".
void print_note(const std::string& text);

}  // namespace xpipe::app
