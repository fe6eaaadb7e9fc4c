// A folder of its own for one test, removed at the end.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "ir/status.h"

namespace xpipe::tests {

class Scratch {
 public:
  Scratch() {
    folder_ = (std::filesystem::temp_directory_path() / "xpipe-test-XXXXXX").string();
    XPIPE_CHECK(mkdtemp(folder_.data()) != nullptr) << folder_;
  }

  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  [[nodiscard]] const std::string& path() const { return folder_; }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

}  // namespace xpipe::tests
