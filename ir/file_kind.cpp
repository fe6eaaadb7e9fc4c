#include "ir/file_kind.h"

#include <algorithm>
#include <cstddef>

namespace xpipe::ir {

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

/// Reads past the string that begins at `at`, a quote; returns what is between the quotes.
std::string_view take_string(std::string_view text, std::size_t& at) {
  const std::size_t begin = ++at;
  while (at < text.size() && text[at] != '"') {
    at += text[at] == '\\' ? 2 : 1;
  }
  at = std::min(at, text.size());
  const std::string_view inside = text.substr(begin, at - begin);
  at = std::min(at + 1, text.size());
  return inside;
}

FileKind kind_of_format(std::string_view format) {
  if (format == "xpipe.schedule") {
    return FileKind::ScheduleJson;
  }
  if (format == "xpipe.profile") {
    return FileKind::Profile;
  }
  if (format == "xpipe.cluster") {
    return FileKind::Cluster;
  }
  return FileKind::OtherJson;
}

/// The first telling key of the outermost object.
FileKind kind_of_object(std::string_view text) {
  int depth = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c != '"') {
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      ++at;
      continue;
    }
    const std::string_view word = take_string(text, at);
    const std::size_t colon = std::min(text.find_first_not_of(kBlanks, at), text.size());
    if (depth != 1 || colon == text.size() || text[colon] != ':') {
      continue;
    }
    if (word == "traceEvents") {
      return FileKind::ChromeTrace;
    }
    std::size_t value = std::min(text.find_first_not_of(kBlanks, colon + 1), text.size());
    if (word == "format" && value < text.size() && text[value] == '"') {
      return kind_of_format(take_string(text, value));
    }
  }
  return FileKind::OtherJson;
}

/// A cell of PyTorch's CSV: digits, capital letters, perhaps digits; or a compound in parentheses.
bool is_action(std::string_view cell) {
  if (!cell.empty() && cell[0] == '(') {
    return true;
  }
  const std::size_t letters = cell.find_first_not_of("0123456789");
  if (letters == 0 || letters == std::string_view::npos) {
    return false;
  }
  const std::size_t digits = std::min(cell.find_first_of("0123456789", letters), cell.size());
  const std::string_view word = cell.substr(letters, digits - letters);
  return std::all_of(word.begin(), word.end(),
                     [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; });
}

bool looks_like_actions(std::string_view line) {
  while (!line.empty()) {
    const std::size_t comma = std::min(line.find(','), line.size());
    std::string_view cell = line.substr(0, comma);
    line.remove_prefix(std::min(comma + 1, line.size()));
    const std::size_t begin = cell.find_first_not_of(kBlanks);
    if (begin != std::string_view::npos) {
      cell = cell.substr(begin, cell.find_last_not_of(kBlanks) - begin + 1);
      return is_action(cell);
    }
  }
  return false;
}

}  // namespace

std::string_view kind_name(FileKind kind) {
  switch (kind) {
    case FileKind::ScheduleJson:
      return "schedule";
    case FileKind::ScheduleText:
      return "schedule in text form";
    case FileKind::Profile:
      return "profile";
    case FileKind::Cluster:
      return "cluster";
    case FileKind::PipedreamGraph:
      return "PipeDream graph.txt";
    case FileKind::ChromeTrace:
      return "Chrome trace";
    case FileKind::PytorchCsv:
      return "PyTorch schedule CSV";
    case FileKind::OtherJson:
      return "JSON of no known format";
    case FileKind::Unknown:
      break;
  }
  return "file of unknown kind";
}

FileKind file_kind(std::string_view path, std::string_view content) {
  if (path.ends_with(".tasks") || content.starts_with("# xpipe.schedule")) {
    return FileKind::ScheduleText;
  }
  const std::string_view mark = "\xEF\xBB\xBF";
  const std::string_view text = content.substr(content.starts_with(mark) ? mark.size() : 0);
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) {
    return FileKind::Unknown;
  }
  if (text[begin] == '{') {
    return kind_of_object(text.substr(begin));
  }
  if (text[begin] == '[') {
    const std::size_t next = text.find_first_not_of(kBlanks, begin + 1);
    const bool objects = next != std::string_view::npos && (text[next] == '{' || text[next] == ']');
    return objects ? FileKind::ChromeTrace : FileKind::OtherJson;
  }
  const std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
  if (line.find(" -- ") != std::string_view::npos) {
    return FileKind::PipedreamGraph;
  }
  return looks_like_actions(line) ? FileKind::PytorchCsv : FileKind::Unknown;
}

}  // namespace xpipe::ir
