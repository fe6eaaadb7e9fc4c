#include "app/table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "ir/status.h"

namespace xpipe::app {

Table::Table(std::vector<std::string> heads) {
  for (std::string& head : heads) {
    left_.push_back(head.starts_with('<'));
    if (left_.back()) {
      head.erase(0, 1);
    }
  }
  rows_.push_back(std::move(heads));
}

void Table::add_row(std::vector<std::string> cells) {
  XPIPE_CHECK(cells.size() == left_.size())
      << cells.size() << " cells, " << left_.size() << " heads";
  rows_.push_back(std::move(cells));
}

std::string Table::to_string() const {
  std::vector<std::size_t> widths(left_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string gap = i == 0 ? "" : "  ";
      line += gap + (left_[i] ? fmt::format("{:<{}}", row[i], widths[i])
                              : fmt::format("{:>{}}", row[i], widths[i]));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace xpipe::app
