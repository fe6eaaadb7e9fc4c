// What the comparisons with published figures share: where the inputs are, their tables, and short
// ways for programs that may end on a fault.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ir/files.h"
#include "ir/ids.h"
#include "ir/status.h"

namespace xpipe::bench {

/// A path in $XPIPE_SHARED (default ../shared).
inline std::string shared(const std::string& path) {
  const char* folder = std::getenv("XPIPE_SHARED");  // NOLINT(concurrency-mt-unsafe)
  return std::string(folder != nullptr ? folder : "../shared") + "/" + path;
}

/// The value; a fault ends the program.
template <typename Value>
Value must(ir::Result<Value> result) {
  XPIPE_CHECK(result.ok()) << result.status().error().to_string();
  return std::move(result).value();
}

using Row = std::map<std::string, std::string>;

/// The rows of a CSV without quotes, by column; none when there is no such file, which it says.
inline std::vector<Row> read_table(const std::string& name) {
  const std::string path = shared("reference/numbers/" + name);
  const auto text = ir::read_file(path);
  if (!text.ok()) {
    std::printf("[SKIPPED] there is no %s\n\n", path.c_str());
    return {};
  }
  std::istringstream lines(text.value());
  const auto cells = [&lines]() -> std::optional<std::vector<std::string>> {
    std::string line;
    if (!std::getline(lines, line)) {
      return std::nullopt;
    }
    std::vector<std::string> found;
    std::istringstream rest(line + ",");
    for (std::string cell; std::getline(rest, cell, ',');) {
      found.push_back(cell);
    }
    return found;
  };
  std::vector<Row> rows;
  const std::vector<std::string> heads = cells().value_or(std::vector<std::string>());
  for (auto line = cells(); line; line = cells()) {
    Row row;
    for (std::size_t i = 0; i < heads.size() && i < line->size(); ++i) {
      row[heads[i]] = (*line)[i];
    }
    rows.push_back(row);
  }
  return rows;
}

inline double value(const Row& row, const std::string& column) {
  return std::strtod(row.at(column).c_str(), nullptr);
}

inline ir::Nanos nanos(double seconds) {
  return static_cast<ir::Nanos>(std::llround(seconds * 1e9));
}

inline double seconds(ir::Nanos time) {
  return static_cast<double>(time) / 1e9;
}

}  // namespace xpipe::bench
