#include "ir/validate_ends.h"

#include <algorithm>
#include <utility>

namespace xpipe::ir::validation {

std::vector<TaskId> Ends::sort(const std::vector<std::uint32_t>& rank) {
  group(rank);
  const auto earlier = [](const End& a, const End& b) {
    return std::pair(a.micro_batch, a.task) < std::pair(b.micro_batch, b.task);
  };
  for (std::size_t r = 0; r < rank.size(); ++r) {
    const auto begin = ends_.begin() + begin_[r];
    const auto end = ends_.begin() + begin_[r + 1];
    if (!std::is_sorted(begin, end, earlier)) {
      std::sort(begin, end, earlier);
    }
  }
  return drop_twins();
}

/// Counts the ends of each route, and puts each in its route's stretch.
void Ends::group(const std::vector<std::uint32_t>& rank) {
  begin_.assign(rank.size() + 1, 0);
  for (End& end : ends_) {
    end.route = rank[end.route];
    ++begin_[end.route + 1];
  }
  for (std::size_t r = 0; r < rank.size(); ++r) {
    begin_[r + 1] += begin_[r];
  }
  std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
  std::vector<End> grouped(ends_.size());
  for (const End& end : ends_) {
    grouped[next[end.route]++] = end;
  }
  ends_ = std::move(grouped);
}

std::vector<TaskId> Ends::drop_twins() {
  std::vector<TaskId> twins;
  std::uint32_t kept = 0;
  std::uint32_t read = 0;
  for (std::size_t r = 0; r + 1 < begin_.size(); ++r) {
    begin_[r] = kept;
    for (; read < begin_[r + 1]; ++read) {
      if (kept > begin_[r] && ends_[kept - 1].micro_batch == ends_[read].micro_batch) {
        twins.push_back(ends_[read].task);
      } else {
        ends_[kept++] = ends_[read];
      }
    }
  }
  begin_.back() = kept;
  ends_.resize(kept);
  return twins;
}

}  // namespace xpipe::ir::validation
