#include "ir/utf8.h"

namespace xpipe::ir {

namespace {

/// The length of the sequence that `lead` begins (0: none does), and what its second byte may be:
/// Unicode 15, table 3-7.
struct Sequence {
  std::size_t length = 0;
  unsigned char least = 0x80;
  unsigned char most = 0xBF;
};

Sequence sequence_of(unsigned char lead) {
  if (lead < 0x80) {
    return {1};
  }
  if (lead >= 0xC2 && lead <= 0xDF) {
    return {2};
  }
  if (lead >= 0xE0 && lead <= 0xEF) {
    return {3, static_cast<unsigned char>(lead == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(lead == 0xED ? 0x9F : 0xBF)};
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    return {4, static_cast<unsigned char>(lead == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(lead == 0xF4 ? 0x8F : 0xBF)};
  }
  return {};
}

/// `at`, or the beginning of the character that it is inside of.
std::size_t character_at(std::string_view text, std::size_t at) {
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80) {
    --at;
  }
  return at;
}

}  // namespace

std::optional<std::size_t> invalid_utf8_at(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size();) {
    const Sequence sequence = sequence_of(byte(i));
    if (sequence.length == 0 || sequence.length > text.size() - i) {
      return i;
    }
    for (std::size_t k = 1; k < sequence.length; ++k) {
      const unsigned char least = k == 1 ? sequence.least : 0x80;
      const unsigned char most = k == 1 ? sequence.most : 0xBF;
      if (byte(i + k) < least || byte(i + k) > most) {
        return i;
      }
    }
    i += sequence.length;
  }
  return std::nullopt;
}

std::string one_line(std::string_view text) {
  constexpr std::string_view kGap = " ... ";
  constexpr std::size_t kTail = kMostShownBytes / 3;
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  const auto escape = [&out, kHex](unsigned char byte) {
    out += "\\x";
    out += kHex[byte >> 4U];
    out += kHex[byte & 15U];
  };
  for (std::size_t i = 0; i < text.size();) {
    // Far more than is shown need not be looked at.
    if (out.size() > kMostShownBytes && text.size() - i > kMostShownBytes) {
      i = character_at(text, text.size() - kMostShownBytes);
    }
    const std::string_view rest = text.substr(i);
    const auto byte = static_cast<unsigned char>(rest[0]);
    const std::size_t length = sequence_of(byte).length;
    if (length == 0 || length > rest.size() || invalid_utf8_at(rest.substr(0, length))) {
      escape(byte);
      ++i;
      continue;
    }
    if (byte == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      escape(byte);
    } else {
      out += rest.substr(0, length);
    }
    i += length;
  }
  if (out.size() > kMostShownBytes) {
    const std::string tail = out.substr(character_at(out, out.size() - kTail));
    out.resize(character_at(out, kMostShownBytes - tail.size() - kGap.size()));
    out.append(kGap).append(tail);
  }
  return out;
}

}  // namespace xpipe::ir
