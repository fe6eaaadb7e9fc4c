#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "tests/fuzz/json_spans.h"

namespace xpipe::fuzz {

namespace {

const std::vector<std::string>& evil_numbers() {
  static const std::vector<std::string> numbers = {
      "NaN",
      "Infinity",
      "-Infinity",
      "1e999",
      "-1e999",
      "1e308",
      "1e-400",
      "1e18",
      "1E+2",
      "-1",
      "-0",
      "-0.0",
      "0",
      "0.1",
      "0.0005",
      "1.5",
      "00",
      "+1",
      ".5",
      "5.",
      "0x10",
      "65534",
      "65535",
      "65536",
      "2147483648",
      "4000000000",
      "4294967294",
      "4294967295",
      "4294967296",
      "9007199254740993",
      "9223372036854775807",
      "9223372036854775808",
      "-9223372036854775808",
      "18446744073709551615",
      "99999999999999999999",
      "9223372036854775.807",
      "1" + std::string(400, '0'),
      "0." + std::string(400, '3'),
      "1_000",
      "1,5",
  };
  return numbers;
}

/// Bytes that no UTF-8 text holds, or that no line should: and a mark that editors put first.
const std::vector<std::string>& evil_bytes() {
  static const std::vector<std::string> bytes = {
      "\xFF",
      "\xC3",
      "\xC0\xAF",
      "\xED\xA0\x80",
      "\xF4\x90\x80\x80",
      "\xEF\xBB\xBF",
      "\xE2\x80\xA8",
      std::string(1, '\0'),
      "\x01",
      "\x1B[31m",
      "\r",
      "\r\n",
      "\n",
      "\t",
      "\"",
      "\\",
      "\\u0000",
      "\\ud800",
      "\\x",
      "\x7F",
      " ",
      "  ",
      " -- ",
      "#",
      "//",
      "[",
      "]",
      "{",
      "}",
      ",",
      ":",
      ">",
      "=",
  };
  return bytes;
}

template <typename T>
const T& any_of(const std::vector<T>& items, Random& random) {
  return items[random.below(items.size())];
}

/// [begin, end) of some part of the text, mostly short.
std::pair<std::size_t, std::size_t> any_range(const std::string& text, Random& random) {
  const std::size_t begin = random.below(text.size() + 1);
  const std::size_t most = random.one_in(8) ? text.size() : 24;
  const std::size_t length = random.below(most + 1);
  return {begin, std::min(begin + length, text.size())};
}

/// A run of digits, signs and points; empty at the end when there is none after a random place.
std::pair<std::size_t, std::size_t> any_number(const std::string& text, Random& random) {
  const std::size_t from = random.below(text.size() + 1);
  std::size_t begin = text.find_first_of("0123456789", from);
  if (begin == std::string::npos) {
    begin = text.find_first_of("0123456789");
  }
  if (begin == std::string::npos) {
    return {text.size(), text.size()};
  }
  return {begin, std::min(text.find_first_not_of("0123456789.", begin), text.size())};
}

std::string tweaked_number(const std::string& number, Random& random) {
  switch (random.below(6)) {
    case 0:
      return "-" + number;
    case 1:
      return number + number;
    case 2:
      return number + "." + std::to_string(random.below(10000));
    case 3:
      return std::to_string(random.below(4));
    case 4:
      return std::to_string(random.below(100));
    default:
      return any_of(evil_numbers(), random);
  }
}

void break_bytes(std::string& text, const std::vector<std::string>& seeds, Random& random) {
  switch (random.below(12)) {
    case 0:
      text.resize(random.below(text.size() + 1));
      break;
    case 1:
      if (!text.empty()) {
        char& c = text[random.below(text.size())];
        c = static_cast<char>(static_cast<unsigned char>(c) ^ (1U << random.below(8)));
      }
      break;
    case 2:
      if (!text.empty()) {
        text[random.below(text.size())] = static_cast<char>(random.below(256));
      }
      break;
    case 3:
    case 4:
      text.insert(random.below(text.size() + 1), any_of(evil_bytes(), random));
      break;
    case 5: {
      const auto [begin, end] = any_range(text, random);
      text.erase(begin, end - begin);
      break;
    }
    case 6: {
      const auto [begin, end] = any_range(text, random);
      text.insert(random.below(text.size() + 1), text.substr(begin, end - begin));
      break;
    }
    case 7: {
      const auto [begin, end] = any_number(text, random);
      text.replace(begin, end - begin, tweaked_number(text.substr(begin, end - begin), random));
      break;
    }
    case 8: {
      const std::string& other = any_of(seeds, random);
      text = text.substr(0, random.below(text.size() + 1)) +
             other.substr(random.below(other.size() + 1));
      break;
    }
    case 9: {
      const auto [begin, end] = any_range(text, random);
      const std::string part = text.substr(begin, end - begin);
      std::string run;
      for (std::size_t n = 1 + random.below(40); n > 0; --n) {
        run += part;
      }
      text.insert(end, run);
      break;
    }
    case 10:
      text.insert(random.below(text.size() + 1),
                  std::string(1 + random.below(random.one_in(4) ? 5000 : 100),
                              "[{ 0a\"/~\xC3"[random.below(9)]));
      break;
    default:
      text.insert(0, any_of(evil_bytes(), random));
      break;
  }
}

std::vector<std::pair<std::size_t, std::size_t>> spans_of(const std::string& text,
                                                          std::string_view separators) {
  std::vector<std::pair<std::size_t, std::size_t>> spans;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    spans.emplace_back(begin, end);
    begin = end + 1;
  }
  return spans;
}

/// Lines or words: left out, given twice, exchanged, given another's text.
void break_pieces(std::string& text, std::string_view separators, Random& random) {
  const auto spans = spans_of(text, separators);
  if (spans.empty()) {
    return;
  }
  const auto [begin, end] = any_of(spans, random);
  const auto [other_begin, other_end] = any_of(spans, random);
  const std::string piece = text.substr(begin, end - begin);
  const std::string other = text.substr(other_begin, other_end - other_begin);
  switch (random.below(6)) {
    case 0:
      text.erase(begin, std::min(end + 1, text.size()) - begin);
      break;
    case 1:
      text.insert(begin, piece + separators.front());
      break;
    case 2:
      text.insert(other_begin, piece + separators.front());
      break;
    case 3:
      text.replace(begin, end - begin, other);
      break;
    case 4:
      // The later one first: the earlier one's place stays.
      if (begin < other_begin) {
        text.replace(other_begin, other.size(), piece);
        text.replace(begin, piece.size(), other);
      }
      break;
    default:
      text.replace(begin, end - begin, random.one_in(2) ? "" : any_of(evil_values(), random));
      break;
  }
}

void with_crlf(std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '\n' ? "\r\n" : std::string(1, c);
  }
  text = std::move(out);
}

void break_lines(std::string& text, Random& random) {
  switch (random.below(12)) {
    case 0:
      with_crlf(text);
      break;
    case 1:
      text.insert(0, "\xEF\xBB\xBF");
      break;
    case 2:
    case 3:
    case 4:
      break_pieces(text, "\n", random);
      break;
    case 5:
    case 6:
    case 7:
      break_pieces(text, " \n\t,=>:[]", random);
      break;
    default: {
      const auto [begin, end] = any_number(text, random);
      text.replace(begin, end - begin, tweaked_number(text.substr(begin, end - begin), random));
      break;
    }
  }
}

std::string deep(std::size_t depth, bool closed) {
  std::string out;
  for (std::size_t i = 0; i < depth; ++i) {
    out += i % 3 == 2 ? "{\"a\":" : "[";
  }
  out += "0";
  for (std::size_t i = depth; closed && i > 0; --i) {
    out += (i - 1) % 3 == 2 ? "}" : "]";
  }
  return out;
}

void break_json(std::string& text, const std::vector<std::string>& seeds, Random& random) {
  const JsonSpans spans = json_spans(text);
  if (spans.values.empty()) {
    break_bytes(text, seeds, random);
    return;
  }
  const Span value = any_of(spans.values, random);
  const Span other = any_of(spans.values, random);
  const std::string value_text = text.substr(value.begin, value.end - value.begin);
  const std::string other_text = text.substr(other.begin, other.end - other.begin);
  switch (random.below(14)) {
    case 0:
    case 1:
      text.replace(value.begin, value_text.size(), any_of(evil_values(), random));
      break;
    case 2:
    case 3:
      if (!spans.items.empty()) {
        const Span item = any_of(spans.items, random);
        text.erase(item.begin, item.end - item.begin);
      }
      break;
    case 4:
    case 5:
      if (!spans.items.empty()) {
        const Span item = any_of(spans.items, random);
        std::string item_text = text.substr(item.begin, item.end - item.begin);
        item_text += item_text.find(',') == std::string::npos || item_text.back() != ',' ? "," : "";
        std::string run = item_text;
        for (std::size_t n = random.one_in(8) ? random.below(60) : 0; n > 0; --n) {
          run += item_text;
        }
        text.insert(item.begin, run);
      }
      break;
    case 6:
      text.replace(value.begin, value_text.size(), other_text);
      break;
    case 7:
      if (value.end <= other.begin) {
        text.replace(other.begin, other_text.size(), value_text);
        text.replace(value.begin, value_text.size(), other_text);
      }
      break;
    case 8:
      if (!spans.keys.empty()) {
        const Span key = any_of(spans.keys, random);
        const Span twin = any_of(spans.keys, random);
        text.replace(key.begin, key.end - key.begin,
                     random.one_in(2) ? text.substr(twin.begin, twin.end - twin.begin)
                                      : "\"" + any_of(evil_bytes(), random) + "x\"");
      }
      break;
    case 9:
      text.replace(value.begin, value_text.size(),
                   random.one_in(2) ? "[" + value_text + "]" : "{\"a\":" + value_text + "}");
      break;
    case 10:
      text.replace(value.begin, value_text.size(),
                   deep(1 + random.below(random.one_in(4) ? 3000 : 80), !random.one_in(4)));
      break;
    case 11:
      if (value_text.front() == '"') {
        text.insert(value.begin + 1 + random.below(value_text.size()),
                    any_of(evil_bytes(), random));
      } else {
        text.replace(value.begin, value_text.size(), tweaked_number(value_text, random));
      }
      break;
    case 12:
      text.insert(value.begin, random.one_in(2) ? "\r\n\t " : "/* note */");
      break;
    default:
      break_lines(text, random);
      break;
  }
}

/// A big-endian count of four bytes somewhere near the beginning, where headers are.
void break_count(std::string& text, Random& random) {
  static const std::vector<std::uint32_t> counts = {
      0, 1, 2, 10, 255, 256, 28, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x00000803};
  const std::size_t begin = 4 * random.below(6);
  if (begin + 4 > text.size()) {
    return;
  }
  const std::uint32_t count = any_of(counts, random);
  for (std::size_t i = 0; i < 4; ++i) {
    text[begin + i] = static_cast<char>((count >> (24 - 8 * i)) & 0xFFU);
  }
}

}  // namespace

const std::vector<std::string>& evil_values() {
  static const std::vector<std::string> values = [] {
    std::vector<std::string> all = evil_numbers();
    for (const char* more :
         {"null",        "true",      "false",          "undefined",
          "\"\"",        "\"NaN\"",   "\"5\"",          "\"\\u0000\"",
          "\"\\ud800\"", "\"\xFF\"",  "\"a\nb\"",       "\"a\\nb\"",
          "[]",          "{}",        "[[]]",           "[null]",
          "[0,1]",       "{\"a\":1}", "\"0F0[s0:v0]\"", "\"1SEND_F4294967295[>65535:8B]\"",
          "'5'"}) {
      all.emplace_back(more);
    }
    all.push_back("\"" + std::string(3000, 'x') + "\"");
    return all;
  }();
  return values;
}

std::string mutated(const std::vector<std::string>& seeds, Grain grain, Random& random) {
  std::string text = any_of(seeds, random);
  std::size_t count = 1;
  while (count < 6 && random.one_in(2)) {
    ++count;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const bool blind = random.one_in(5);
    switch (blind ? Grain::Binary : grain) {
      case Grain::Json:
        break_json(text, seeds, random);
        break;
      case Grain::Lines:
        break_lines(text, random);
        break;
      case Grain::Binary:
        if (grain == Grain::Binary && random.one_in(2)) {
          break_count(text, random);
        } else {
          break_bytes(text, seeds, random);
        }
        break;
    }
  }
  text.resize(std::min(text.size(), kMaxInputBytes));
  return text;
}

}  // namespace xpipe::fuzz
