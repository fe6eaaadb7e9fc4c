// What the tasks of one schedule are called where they are pointed at, as in the edges of a .tasks
// file: the text up to the bracket where that is unique, else in full, else counted (ir/text.h).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/schedule.h"
#include "ir/task.h"

namespace xpipe::ir {

/// Immutable after construction; linear in the tasks.
class TaskNames {
 public:
  /// `tasks` must outlive the names.
  explicit TaskNames(const std::vector<Task>& tasks);

  /// Requires: an id in range. find(name(id)) is id.
  [[nodiscard]] std::string name(TaskId id) const;

  /// The task called `name`, or nothing and what is wrong with the name.
  [[nodiscard]] std::pair<std::optional<TaskId>, std::string> find(std::string_view name) const;

 private:
  struct TextHash {
    using is_transparent = void;

    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };

  template <typename Value>
  using ByText = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

  const std::vector<Task>& tasks_;
  std::vector<bool> shared_;             ///< by TaskId: another task has its short name too
  ByText<TaskId> by_short_name_;         ///< the first of that name
  ByText<std::vector<TaskId>> by_text_;  ///< in full, of those not unique by short name
};

/// "compute 0", "send 0>1", "receive 0>1" (the lane of device 1).
[[nodiscard]] std::string lane_name(const Lane& lane);

}  // namespace xpipe::ir
