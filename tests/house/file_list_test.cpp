// CMake's file lists are written by hand, so a file can be forgotten: a source that is never
// compiled, a test that never runs.
#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/house/tree.h"

namespace xpipe::house {
namespace {

const std::vector<std::string> kBuiltFolders{"ir",       "scheduler", "policies", "simulator",
                                             "executor", "traces",    "app",      "tests"};

constexpr std::size_t kMostLines = 450;

// The words of a CMakeLists.txt, comments left out.
std::set<std::string> words_of(const std::string& cmake_file) {
  std::set<std::string> words;
  for (std::string line : lines_of(cmake_file)) {
    line.resize(std::min(line.find('#'), line.size()));
    std::string word;
    for (const char c : line + " ") {
      const bool separates = std::string_view(" \t()\"").find(c) != std::string_view::npos;
      if (!separates) {
        word += c;
      } else if (!word.empty()) {
        words.insert(word);
        word.clear();
      }
    }
  }
  return words;
}

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

TEST_CASE("file list: every source and test is named in its folder's CMakeLists.txt") {
  const auto files = files_below(kBuiltFolders, {".h", ".cpp", ".cu"});
  REQUIRE(files.size() > 20);
  for (const std::string& file : files) {
    // A test's own header is found by its test; a library's is part of the file set.
    if (file.starts_with("tests/") && file.ends_with(".h")) {
      continue;
    }
    const std::string list = folder_of(file) + "/CMakeLists.txt";
    CHECK_MESSAGE(words_of(list).contains(name_of(file)), file, " is not named in ", list);
  }
}

TEST_CASE("file list: no test hides in a file whose name does not say so") {
  for (const std::string& file : files_below({"tests"}, {".cpp", ".cu"})) {
    bool holds_tests = false;
    for (const std::string& line : lines_of(file)) {
      holds_tests = holds_tests || line.starts_with("TEST_CASE");
    }
    CHECK_MESSAGE((!holds_tests || file.find("_test.") != std::string::npos), file);
  }
}

TEST_CASE("file list: no file is longer than two ideas") {
  for (const std::string& file : files_below(kBuiltFolders, {".h", ".cpp", ".cu"})) {
    const std::size_t lines = lines_of(file).size();
    CHECK_MESSAGE(lines <= kMostLines, file, " has ", lines, " lines: which two ideas live there?");
  }
}

}  // namespace
}  // namespace xpipe::house
