// A plain text table: columns as wide as their widest cell, numbers to the right.
#pragma once

#include <string>
#include <vector>

namespace xpipe::app {

class Table {
 public:
  /// The heads; a head that begins with '<' makes its column left-aligned.
  explicit Table(std::vector<std::string> heads);

  /// Requires: as many cells as heads.
  void add_row(std::vector<std::string> cells);

  /// Lines end with LF; no trailing blanks.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace xpipe::app
