#include "executor/torch/text_corpus.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "executor/torch/data_faults.h"
#include "ir/files.h"
#include "ir/utf8.h"

namespace xpipe::executor::nn {

namespace {

namespace fs = std::filesystem;

/// Requires: UTF-8.
std::vector<std::uint32_t> code_points(std::string_view text) {
  std::vector<std::uint32_t> points;
  points.reserve(text.size());
  for (const char letter : text) {
    const auto byte = static_cast<std::uint8_t>(letter);
    if ((byte & 0xC0U) == 0x80U) {
      points.back() = (points.back() << 6U) | (byte & 0x3FU);
    } else if (byte < 0x80U) {
      points.push_back(byte);
    } else {
      points.push_back(byte & (byte >= 0xF0U ? 0x07U : byte >= 0xE0U ? 0x0FU : 0x1FU));
    }
  }
  return points;
}

TextCorpus of_bytes(std::string_view text) {
  TextCorpus corpus;
  corpus.vocabulary = 256;
  corpus.tokens.reserve(text.size());
  for (const char letter : text) {
    corpus.tokens.push_back(static_cast<std::uint8_t>(letter));
  }
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    corpus.characters.push_back(byte);
  }
  return corpus;
}

}  // namespace

ir::Result<TextCorpus> read_text_corpus(const fs::path& file, TextTokens kind) {
  std::error_code ignored;
  const std::uintmax_t size = fs::file_size(file, ignored);
  if (!ignored && size > kMostDataBytes) {
    return broken(file, "bad-size", std::to_string(size) + " bytes; want at most 2^31");
  }
  const ir::Result<std::string> text = ir::read_file(file.string());
  if (!text.ok()) {
    return text.error();
  }
  if (text.value().empty()) {
    return broken(file, "empty", "is empty; want a text");
  }
  if (kind == TextTokens::Bytes) {
    return of_bytes(text.value());
  }
  if (const std::optional<std::size_t> bad = ir::invalid_utf8_at(text.value())) {
    return broken(file, "not-utf8",
                  "byte " + std::to_string(*bad) +
                      " is not UTF-8; convert the file, or take it by --tokens bytes");
  }
  TextCorpus corpus;
  corpus.tokens = code_points(text.value());
  const std::set<std::uint32_t> distinct(corpus.tokens.begin(), corpus.tokens.end());
  corpus.characters.assign(distinct.begin(), distinct.end());
  corpus.vocabulary = static_cast<std::uint32_t>(corpus.characters.size());
  for (std::uint32_t& token : corpus.tokens) {
    token = static_cast<std::uint32_t>(std::ranges::lower_bound(corpus.characters, token) -
                                       corpus.characters.begin());
  }
  return corpus;
}

std::uint32_t text_samples(std::size_t tokens, std::uint32_t sequence) {
  return tokens == 0 ? 0U : static_cast<std::uint32_t>((tokens - 1) / sequence);
}

fs::path text_file_of(const fs::path& path) {
  std::error_code failed;
  if (fs::is_regular_file(path, failed)) {
    return path.extension() == ".txt" ? path : fs::path();
  }
  fs::path found;
  for (fs::directory_iterator entry(path, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (entry->path().extension() == ".txt") {
      if (!found.empty()) {
        return {};
      }
      found = entry->path();
    }
  }
  return found;
}

}  // namespace xpipe::executor::nn
