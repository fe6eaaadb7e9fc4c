// A text file as numbers, by characters or by bytes, cut into samples of equal length. No torch.
//
//   text     t h e   c a t   s a t         sequence 4
//   sample 0 t h e _   labels h e _ c      a label is the token after
//   sample 1 c a t _   labels a t _ s
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ir/status.h"

namespace xpipe::executor::nn {

enum class TextTokens : std::uint8_t {
  Characters,  ///< code points of UTF-8; the vocabulary is those that occur, in ascending order
  Bytes,       ///< a vocabulary of 256, whatever occurs
};

struct TextCorpus {
  std::vector<std::uint32_t> tokens;  ///< of the whole text, each below vocabulary
  std::uint32_t vocabulary = 0;
  std::vector<std::uint32_t> characters;  ///< the code point of each token; of bytes 0 to 255
};

/// Errors: BadInput for a file that is missing, empty, over 2^31 bytes, or, by characters, not
/// UTF-8 (with the byte's place).
[[nodiscard]] ir::Result<TextCorpus> read_text_corpus(const std::filesystem::path& file,
                                                      TextTokens kind);

/// How many samples of `sequence` tokens and as many labels `tokens` hold: (tokens - 1) / sequence.
[[nodiscard]] std::uint32_t text_samples(std::size_t tokens, std::uint32_t sequence);

/// The file that `path` is or, of a folder, the one .txt in it; empty where there is none, or
/// several.
[[nodiscard]] std::filesystem::path text_file_of(const std::filesystem::path& path);

}  // namespace xpipe::executor::nn
