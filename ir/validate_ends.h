// Internal to the validator's communication level: one end of each message, sends or receives,
// sorted by route and micro-batch so that both ends are paired by one walk. Linear: routes are few,
// and the ends of one come in the order of micro-batches in all but odd schedules.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/ids.h"
#include "ir/task.h"

namespace xpipe::ir::validation {

/// All messages of one pass from one stage to another.
struct Route {
  Pass pass = Pass::Forward;
  StageId from{};
  StageId to{};

  auto operator<=>(const Route&) const = default;
};

/// One end of a message.
struct End {
  std::uint32_t route = 0;  ///< its number
  MicroBatch micro_batch{};
  TaskId task{};
};

class Ends {
 public:
  void add(const End& end) { ends_.push_back(end); }

  /// Sorts by (rank of the route, micro-batch, task); `rank` is by number and numbers are ranks
  /// afterwards. Drops the ends that are there twice, all but the first, and returns them in order.
  std::vector<TaskId> sort(const std::vector<std::uint32_t>& rank);

  /// In the order of micro-batches, each once. Requires: sorted.
  [[nodiscard]] std::span<const End> of(std::size_t route) const {
    return std::span(ends_).subspan(begin_[route], begin_[route + 1] - begin_[route]);
  }

 private:
  void group(const std::vector<std::uint32_t>& rank);
  std::vector<TaskId> drop_twins();

  std::vector<End> ends_;
  std::vector<std::uint32_t> begin_;  ///< by route
};

}  // namespace xpipe::ir::validation
