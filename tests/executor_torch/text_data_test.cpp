// Text as samples: characters and bytes, labels that are the next tokens, and the test's share.
#include <filesystem>
#include <string>
#include <vector>

#include "executor/torch/dataset.h"
#include "executor/torch/text_corpus.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/scratch_folder.h"

namespace xpipe::tests {
namespace {

namespace fs = std::filesystem;
namespace nn = executor::nn;

/// A text in a file of its own.
class TextFile {
 public:
  explicit TextFile(const std::string& text) { folder_.write("corpus.txt", text); }

  [[nodiscard]] std::string path() const { return folder_.path("corpus.txt"); }

  [[nodiscard]] const std::string& folder() const { return folder_.path(); }

 private:
  ScratchFolder folder_;
};

TEST_CASE("text: by characters the vocabulary is what occurs, by bytes always 256") {
  const TextFile file("b\u00e9a\u20ac\U0001F600b");
  const auto characters = nn::read_text_corpus(file.path(), nn::TextTokens::Characters);
  REQUIRE(characters.ok());
  CHECK(characters.value().characters ==
        std::vector<std::uint32_t>{'a', 'b', 0xE9, 0x20AC, 0x1F600});
  CHECK(characters.value().tokens == std::vector<std::uint32_t>{1, 2, 0, 3, 4, 1});
  const auto bytes = nn::read_text_corpus(file.path(), nn::TextTokens::Bytes);
  REQUIRE(bytes.ok());
  CHECK(bytes.value().vocabulary == 256);
  CHECK(bytes.value().tokens.size() == 12);
  CHECK(bytes.value().tokens[1] == 0xC3);
}

TEST_CASE(
    "text: samples follow each other, a label is the token after, the last tenth is the test") {
  std::string text;
  for (int i = 0; i < 101; ++i) {
    text += static_cast<char>('a' + i % 23);
  }
  const TextFile file(text);
  const auto data = nn::open_dataset(file.folder(), {}, 5, 1);
  REQUIRE_MESSAGE(data.ok(), data.error().to_string());
  CHECK(data.value().kind == "text");
  CHECK(data.value().shape.sequence == 5);
  CHECK(data.value().classes == 23);
  CHECK(data.value().train->count() == 18);
  CHECK(data.value().test->count() == 2);
  const std::vector<std::uint32_t> third{3};
  const torch::Tensor input = data.value().train->input_batch(0, third).value();
  const torch::Tensor labels = data.value().train->label_batch(third);
  REQUIRE(input.sizes() == torch::IntArrayRef({1, 5}));
  for (std::int64_t t = 0; t < 5; ++t) {
    CHECK(input[0][t].item<std::int64_t>() == (15 + t) % 23);
    CHECK(labels[0][t].item<std::int64_t>() == (16 + t) % 23);
  }
  const std::vector<std::uint32_t> last{1};
  CHECK(data.value().test->label_batch(last)[0][4].item<std::int64_t>() == 100 % 23);
  CHECK(nn::text_samples(101, 5) == 20);
  CHECK(nn::text_samples(100, 5) == 19);
  CHECK(nn::text_samples(0, 5) == 0);
}

TEST_CASE("text: what is none, too short or for other models is refused with the way out") {
  const auto fault = [](const fs::path& path, std::uint32_t sequence,
                        const nn::DataOptions& options = {}) {
    const auto data = nn::open_dataset(path.string(), options, sequence, 1);
    return data.ok() ? std::string("ok") : data.error().to_string();
  };
  const TextFile bad("abc\xff");
  CHECK(fault(bad.path(), 1).find("byte 3 is not UTF-8") != std::string::npos);
  nn::DataOptions bytes;
  bytes.tokens = nn::TextTokens::Bytes;
  CHECK(fault(bad.path(), 1, bytes) == "ok");
  const TextFile good("hello world");
  CHECK(fault(good.path(), 3) == "ok");
  CHECK(fault(good.path(), 8).find("at least 17") != std::string::npos);
  CHECK(fault(good.path(), 0).find("--model gpt") != std::string::npos);
  nn::DataOptions flipped;
  flipped.augmentations.flip = true;
  CHECK(fault(good.path(), 3, flipped).find("--augment") != std::string::npos);
  CHECK(fault(XPIPE_SOURCE_DIR "/examples/data/digits", 8).find("no .txt file") !=
        std::string::npos);
  const TextFile empty("");
  CHECK(fault(empty.path(), 1).find("empty") != std::string::npos);
}

}  // namespace
}  // namespace xpipe::tests
