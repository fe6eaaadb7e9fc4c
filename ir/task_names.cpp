#include "ir/task_names.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <type_traits>

#include "ir/text.h"

namespace xpipe::ir {

namespace {

/// What an edge calls a task when no other task has that name.
std::string short_name(const Task& task) {
  return std::visit(
      [&task]<typename T>(const T& payload) {
        if constexpr (std::is_same_v<T, Send> || std::is_same_v<T, Receive>) {
          Task bare = task;
          T message = payload;
          message.bytes = kUnknownBytes;
          bare.payload = message;
          return to_text(bare);
        } else {
          std::string text = to_text(task);
          return text.substr(0, text.find('['));
        }
      },
      task.payload);
}

}  // namespace

TaskNames::TaskNames(const std::vector<Task>& tasks) : tasks_(tasks), shared_(tasks.size(), false) {
  by_short_name_.reserve(tasks.size());
  for (std::uint32_t i = 0; i < tasks.size(); ++i) {
    const auto [first, is_new] = by_short_name_.try_emplace(short_name(tasks[i]), TaskId{i});
    if (!is_new) {
      shared_[i] = true;
      shared_[index_of(first->second)] = true;
    }
  }
  for (std::uint32_t i = 0; i < tasks.size(); ++i) {
    if (shared_[i]) {
      by_text_[to_text(tasks[i])].push_back(TaskId{i});
    }
  }
}

std::string TaskNames::name(TaskId id) const {
  const Task& task = tasks_[index_of(id)];
  if (!shared_[index_of(id)]) {
    return short_name(task);
  }
  std::string text = to_text(task);
  const std::vector<TaskId>& twins = by_text_.find(text)->second;
  if (twins.size() > 1) {
    const auto place = std::lower_bound(twins.begin(), twins.end(), id) - twins.begin();
    text += "#" + std::to_string(place);
  }
  return text;
}

std::pair<std::optional<TaskId>, std::string> TaskNames::find(std::string_view name) const {
  const auto by_short = by_short_name_.find(name);
  const bool known = by_short != by_short_name_.end();
  if (known && !shared_[index_of(by_short->second)]) {
    return {by_short->second, ""};
  }
  const std::size_t hash = name.rfind('#');
  const auto by_text = by_text_.find(name.substr(0, hash));
  if (by_text != by_text_.end()) {
    const std::vector<TaskId>& twins = by_text->second;
    if (hash == std::string_view::npos && twins.size() == 1) {
      return {twins[0], ""};
    }
    std::size_t place = twins.size();
    const char* end = name.data() + name.size();
    if (hash != std::string_view::npos && twins.size() > 1 &&
        std::from_chars(name.data() + hash + 1, end, place).ptr == end && place < twins.size()) {
      return {twins[place], ""};
    }
    return {std::nullopt,
            std::to_string(twins.size()) +
                (twins.size() == 1 ? " task has this text: expected no #"
                                   : " tasks have this text: expected " + by_text->first +
                                         "#0 to #" + std::to_string(twins.size() - 1))};
  }
  if (known) {
    return {std::nullopt, "several tasks have this name: write one of them in full, such as " +
                              to_text(tasks_[index_of(by_short->second)])};
  }
  return {std::nullopt, "no lane holds a task of this name"};
}

std::string lane_name(const Lane& lane) {
  const std::string device = std::to_string(index_of(lane.device));
  const std::string peer = std::to_string(index_of(lane.peer));
  switch (lane.kind) {
    case LaneKind::Compute:
      return "compute " + device;
    case LaneKind::Send:
      return "send " + device + ">" + peer;
    case LaneKind::Receive:
      return "receive " + peer + ">" + device;
  }
  return "";
}

}  // namespace xpipe::ir
