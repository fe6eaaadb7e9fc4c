#include "tests/house/tree.h"

#include <algorithm>
#include <fstream>

namespace xpipe::house {
namespace {

const std::filesystem::path& root() {
  static const std::filesystem::path path(XPIPE_SOURCE_DIR);
  return path;
}

}  // namespace

std::vector<std::string> files_below(const std::vector<std::string>& folders,
                                     const std::set<std::string>& suffixes) {
  std::vector<std::string> files;
  for (const std::string& folder : folders) {
    if (!std::filesystem::exists(root() / folder)) {
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root() / folder)) {
      if (entry.is_regular_file() && suffixes.contains(entry.path().extension().string())) {
        files.push_back(entry.path().lexically_relative(root()).generic_string());
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream stream(root() / path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::string folder_of(std::string_view path) {
  return std::filesystem::path(path).parent_path().generic_string();
}

std::string stem_of(std::string_view path) {
  return std::filesystem::path(path).stem().string();
}

}  // namespace xpipe::house
