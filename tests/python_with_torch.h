// A Python that has real PyTorch, for tests with PyTorch on the other side.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace xpipe::tests {

inline constexpr const char* kNoPythonWithTorch =
    "[SKIPPED] no Python with torch: set XPIPE_TORCH_PYTHON, or run ./dev bench peers\n";

/// $XPIPE_TORCH_PYTHON, or that of ./dev bench peers; empty: none.
inline std::string python_with_torch() {
  const char* named = std::getenv("XPIPE_TORCH_PYTHON");
  std::string python = named != nullptr ? named : "";
  if (python.empty()) {
    const char* cache = std::getenv("XPIPE_CACHE");
    const char* home = std::getenv("HOME");
    const std::filesystem::path folder =
        cache != nullptr ? std::filesystem::path(cache)
                         : std::filesystem::path(home != nullptr ? home : "") / ".cache/xpipe";
    std::error_code failed;
    for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
         entry.increment(failed)) {
      if (entry->path().filename().string().starts_with("peers-") &&
          std::filesystem::exists(entry->path() / "complete")) {
        python = (entry->path() / "bin/python").string();
      }
    }
  }
  if (python.empty() ||
      std::system(("'" + python + "' -c 'import torch' 2> /dev/null").c_str()) != 0) {
    return {};
  }
  return python;
}

}  // namespace xpipe::tests
