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

}  // namespace xpipe::ir
