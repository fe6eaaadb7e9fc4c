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

TaskNames::TaskNames(const std::vector<Task>& tasks) : tasks_(tasks) {
  by_short_name_.reserve(tasks.size());
  for (std::uint32_t i = 0; i < tasks.size(); ++i) {
    by_short_name_[short_name(tasks[i])].push_back(TaskId{i});
  }
  for (auto& [name, ids] : by_short_name_) {
    if (ids.size() > 1) {
      for (const TaskId id : ids) {
        by_text_[to_text(tasks[index_of(id)])].push_back(id);
      }
    }
  }
}

std::string TaskNames::name(TaskId id) const {
  const Task& task = tasks_[index_of(id)];
  std::string shortest = short_name(task);
  if (by_short_name_.at(shortest).size() == 1) {
    return shortest;
  }
  std::string text = to_text(task);
  const std::vector<TaskId>& twins = by_text_.at(text);
  if (twins.size() > 1) {
    const auto place = std::lower_bound(twins.begin(), twins.end(), id) - twins.begin();
    text += "#" + std::to_string(place);
  }
  return text;
}

std::pair<std::optional<TaskId>, std::string> TaskNames::find(std::string_view name) const {
  const std::string whole(name);
  const auto by_short = by_short_name_.find(whole);
  if (by_short != by_short_name_.end() && by_short->second.size() == 1) {
    return {by_short->second[0], ""};
  }
  const std::size_t hash = whole.rfind('#');
  const auto by_text = by_text_.find(whole.substr(0, hash));
  if (by_text != by_text_.end()) {
    const std::vector<TaskId>& twins = by_text->second;
    if (hash == std::string::npos && twins.size() == 1) {
      return {twins[0], ""};
    }
    std::size_t place = twins.size();
    const char* end = whole.data() + whole.size();
    if (hash != std::string::npos &&
        std::from_chars(whole.data() + hash + 1, end, place).ptr == end && place < twins.size()) {
      return {twins[place], ""};
    }
    return {std::nullopt, std::to_string(twins.size()) + " tasks have this text: expected " +
                              by_text->first + "#0 to #" + std::to_string(twins.size() - 1)};
  }
  if (by_short != by_short_name_.end()) {
    std::string problem = std::to_string(by_short->second.size()) +
                          " tasks have this name: write one of them in full, such as " +
                          to_text(tasks_[index_of(by_short->second[0])]) + " or " +
                          to_text(tasks_[index_of(by_short->second[1])]);
    return {std::nullopt, problem};
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
