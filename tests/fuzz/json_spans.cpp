#include "tests/fuzz/json_spans.h"

#include <algorithm>
#include <utility>

namespace xpipe::fuzz {

namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kPunctuation = " \t\r\n{}[]:,\"";

struct Open {
  std::size_t begin = 0;       ///< of the bracket
  std::size_t item_begin = 0;  ///< of the item that is being read
  bool has_item = false;
};

std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    at += text[at] == '\\' ? 1 : 0;
  }
  return std::min(at + 1, text.size());
}

}  // namespace

JsonSpans json_spans(std::string_view text) {
  JsonSpans spans;
  std::vector<Open> open;
  const auto item_begins = [&open](std::size_t at) {
    if (!open.empty() && !open.back().has_item) {
      open.back().item_begin = at;
      open.back().has_item = true;
    }
  };
  const auto item_ends = [&open, &spans](std::size_t at) {
    if (!open.empty() && open.back().has_item) {
      spans.items.push_back({open.back().item_begin, at});
      open.back().has_item = false;
    }
  };
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (kBlanks.find(c) != std::string_view::npos || c == ':') {
      ++at;
    } else if (c == '{' || c == '[') {
      item_begins(at);
      open.push_back({at, 0, false});
      ++at;
    } else if (c == '}' || c == ']') {
      item_ends(at);
      ++at;
      if (!open.empty()) {
        spans.values.push_back({open.back().begin, at});
        open.pop_back();
      }
    } else if (c == ',') {
      item_ends(++at);
    } else {
      item_begins(at);
      const std::size_t end = c == '"'
                                  ? end_of_string(text, at)
                                  : std::min(text.find_first_of(kPunctuation, at), text.size());
      const std::size_t next = text.find_first_not_of(kBlanks, end);
      const bool key = c == '"' && next != std::string_view::npos && text[next] == ':';
      (key ? spans.keys : spans.values).push_back({at, end});
      at = end;
    }
  }
  return spans;
}

}  // namespace xpipe::fuzz
