// Readers of images, the order of samples, and how a mini-batch is cut.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

#include "executor/torch/dataset.h"
#include "executor/torch/image_files.h"
#include "executor/torch/sample_order.h"
#include "executor/torch/segments.h"
#include "tests/executor_torch/faults.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/scratch_folder.h"

namespace xpipe::tests {
namespace {

namespace fs = std::filesystem;
namespace nn = executor::nn;

void write_gz(const fs::path& file, const std::string& bytes) {
  gzFile stream = gzopen(file.c_str(), "wb");
  gzwrite(stream, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(stream);
}

std::string read(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string number(std::uint32_t n) {
  return {static_cast<char>(n >> 24U), static_cast<char>(n >> 16U), static_cast<char>(n >> 8U),
          static_cast<char>(n)};
}

/// An IDX file with these sizes and bytes.
std::string idx(const std::vector<std::uint32_t>& sizes, const std::string& bytes) {
  std::string text{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (const std::uint32_t size : sizes) {
    text += number(size);
  }
  return text + bytes;
}

const std::string kImages =
    idx({3, 2, 2}, std::string("\x00\x10\x20\x30\x01\x11\x21\x31\x02\x12\x22\xff", 12));
const std::string kLabels = idx({3}, std::string("\x00\x09\x05", 3));

void write_mnist(const ScratchFolder& folder) {
  folder.write("train-images-idx3-ubyte", kImages);
  folder.write("train-labels-idx1-ubyte", kLabels);
  write_gz(folder.path("t10k-images-idx3-ubyte.gz"), kImages);
  write_gz(folder.path("t10k-labels.idx1-ubyte.gz"), kLabels);
}

TEST_CASE("mnist: a folder of plain and gzipped IDX files is read, whatever the spelling") {
  const ScratchFolder folder;
  write_mnist(folder);
  const auto data = nn::read_image_folder(folder.path());
  REQUIRE_MESSAGE(data.ok(), fault_of(data.status()));
  CHECK(data.value().kind == "mnist");
  const nn::ImageSet& train = data.value().train;
  CHECK(train.count == 3);
  CHECK(train.channels == 1);
  CHECK(train.height == 2);
  CHECK(train.width == 2);
  CHECK(train.pixels[11] == 255);
  CHECK(train.labels == std::vector<std::uint8_t>{0, 9, 5});
  CHECK(data.value().test == train);
}

TEST_CASE("mnist: every broken file is refused with what is wrong") {
  struct Case {
    std::string name;
    std::string file;
    std::string bytes;
    std::string expected;
  };

  const ScratchFolder good;
  write_gz(good.path("gz"), kImages);
  const std::string packed = read(good.path("gz"));
  std::string damaged = packed;
  damaged[damaged.size() - 6] ^= 1;  // in the check sum
  const std::vector<Case> cases{
      {"empty", "train-images-idx3-ubyte", "", "begins with ''"},
      {"not IDX", "train-images-idx3-ubyte", "hello world, hello", "begins with '68 65 6c 6c'"},
      {"signed bytes", "train-labels-idx1-ubyte", std::string("\0\0\x09\x01", 4) + number(0),
       "begins with '00 00 09 01'"},
      {"labels for images", "train-images-idx3-ubyte", kLabels, "3 dimension(s)"},
      {"cut in the header", "train-images-idx3-ubyte", kImages.substr(0, 9),
       "ends within its header"},
      {"cut in the pixels", "train-images-idx3-ubyte", kImages.substr(0, kImages.size() - 1),
       "ends after 11 of the 12 bytes that its header says (3 x 2 x 2)"},
      {"goes on", "train-images-idx3-ubyte", kImages + "x", "goes on after the 12 bytes"},
      {"no images", "train-images-idx3-ubyte", idx({0, 2, 2}, ""), "want no zero"},
      {"absurd", "train-images-idx3-ubyte", idx({0xffffffff, 0xffffffff, 0xffffffff}, "abc"),
       "4294967295 x 4294967295 x 4294967295"},
      {"a lying header", "train-images-idx3-ubyte", idx({0x10000, 0x100, 0x40}, "abc"),
       "ends after 3 of the 1073741824 bytes"},
      {"a label of 10", "train-labels-idx1-ubyte", idx({3}, std::string("\0\x0a\0", 3)),
       "label 10 of sample 1; want 0 to 9"},
      {"fewer labels", "train-labels-idx1-ubyte", idx({2}, std::string("\0\1", 2)),
       "2 labels for the 3 images"},
      {"gzip cut short", "train-images-idx3-ubyte", packed.substr(0, packed.size() - 10),
       "bad-gzip"},
      {"gzip damaged", "train-images-idx3-ubyte", damaged, "bad-gzip"},
      {"other size than the test's", "train-images-idx3-ubyte",
       idx({3, 1, 4}, std::string(12, 'x')), "differ in size"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const ScratchFolder folder;
    write_mnist(folder);
    folder.write(c.file, c.bytes);
    const auto data = nn::read_image_folder(folder.path());
    REQUIRE_FALSE(data.ok());
    CHECK(data.error().kind == ir::ErrorKind::BadInput);
    CHECK_MESSAGE(data.error().to_string().find(c.expected) != std::string::npos,
                  data.error().to_string());
  }
}

TEST_CASE("mnist: all missing files are named at once") {
  const ScratchFolder folder;
  folder.write("train-images-idx3-ubyte", kImages);
  const auto data = nn::read_image_folder(folder.path());
  REQUIRE_FALSE(data.ok());
  CHECK(data.error().diagnostics.size() == 3);
}

std::string record(char label, char fill) {
  return label + std::string(3072, fill);
}

void write_cifar(const ScratchFolder& folder) {
  for (int i = 1; i <= 5; ++i) {
    folder.write("data_batch_" + std::to_string(i) + ".bin",
                 record(static_cast<char>(i), 'a') + record(0, 'b'));
  }
  folder.write("test_batch.bin", record(7, 'c'));
}

TEST_CASE("cifar-10: five training files and one for the test are read in order") {
  const ScratchFolder folder;
  write_cifar(folder);
  const auto data = nn::read_image_folder(folder.path());
  REQUIRE_MESSAGE(data.ok(), fault_of(data.status()));
  CHECK(data.value().kind == "cifar10");
  CHECK(data.value().train.count == 10);
  CHECK(data.value().train.labels == std::vector<std::uint8_t>{1, 0, 2, 0, 3, 0, 4, 0, 5, 0});
  CHECK(data.value().train.pixels.size() == 10 * 3072);
  CHECK(data.value().train.pixels[3072] == 'b');
  CHECK(data.value().test.labels == std::vector<std::uint8_t>{7});
}

TEST_CASE("cifar-10: every broken file is refused with what is wrong") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "0 bytes; want a multiple of the 3073"},
      {record(1, 'a') + "x", "3074 bytes; want a multiple"},
      {record(1, 'a') + record(10, 'a'), "label 10 of sample 1"},
  };
  for (const auto& [bytes, expected] : cases) {
    const ScratchFolder folder;
    write_cifar(folder);
    folder.write("data_batch_3.bin", bytes);
    fs::remove(folder.path("test_batch.bin"));
    const auto data = nn::read_image_folder(folder.path());
    REQUIRE_FALSE(data.ok());
    CHECK(data.error().diagnostics.size() == 2);  // the missing one, too
    CHECK_MESSAGE(data.error().to_string().find(expected) != std::string::npos,
                  data.error().to_string());
  }
}

TEST_CASE("a folder without data, with two kinds of it, or that is not there is refused") {
  const ScratchFolder folder;
  CHECK(fault_of(nn::read_image_folder(folder.path()).status()).find("unknown-data") !=
        std::string::npos);
  CHECK(fault_of(nn::read_image_folder(folder.path("none")).status()).find("no-folder") !=
        std::string::npos);
  write_mnist(folder);
  write_cifar(folder);
  CHECK(fault_of(nn::read_image_folder(folder.path()).status()).find("two-kinds") !=
        std::string::npos);
}

TEST_CASE("the shipped digits: 4,000 for training and 1,000 for the test, every class alike") {
  const auto data = nn::read_image_folder(XPIPE_SOURCE_DIR "/examples/data/digits");
  REQUIRE_MESSAGE(data.ok(), fault_of(data.status()));
  for (const auto& [set, count] :
       {std::pair{&data.value().train, 4000U}, std::pair{&data.value().test, 1000U}}) {
    CHECK(set->count == count);
    CHECK(set->height == 28);
    CHECK(set->width == 28);
    for (std::uint8_t label = 0; label < 10; ++label) {
      CHECK(std::count(set->labels.begin(), set->labels.end(), label) == count / 10);
    }
  }
  const nn::Samples train = nn::normalized(data.value().train, "mnist");
  CHECK(train.inputs.sizes() == torch::IntArrayRef({4000, 1, 28, 28}));
  CHECK(train.inputs.min().item<double>() == doctest::Approx((0 - 0.1307) / 0.3081));
  CHECK(train.inputs.max().item<double>() == doctest::Approx((1 - 0.1307) / 0.3081));
}

TEST_CASE("order of samples: a permutation by seed and epoch, the same everywhere") {
  const std::vector<std::uint32_t> order = nn::epoch_order(1000, 1, 0);
  CHECK(std::set<std::uint32_t>(order.begin(), order.end()).size() == 1000);
  CHECK(order == nn::epoch_order(1000, 1, 0));
  CHECK(order != nn::epoch_order(1000, 1, 1));
  CHECK(order != nn::epoch_order(1000, 2, 0));
  CHECK(nn::epoch_order(0, 1, 0).empty());
  CHECK(nn::epoch_order(1, 1, 0) == std::vector<std::uint32_t>{0});
  // From a port to another language: the same on every platform.
  CHECK(nn::epoch_order(8, 0, 0) == std::vector<std::uint32_t>{6, 1, 5, 0, 4, 3, 7, 2});
}

TEST_CASE("order of samples: every place is as likely as any other") {
  std::vector<int> first(5, 0);
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    ++first[nn::epoch_order(5, seed, 3)[0]];
  }
  for (const int times : first) {
    CHECK(times > 1000 - 150);  // 5 deviations of a binomial of 5000 and 1/5
    CHECK(times < 1000 + 150);
  }
}

TEST_CASE("micro-batches: sizes differ by one at most, the larger ones first") {
  const auto sizes = [](std::uint32_t samples, std::uint32_t parts) {
    std::vector<std::uint32_t> counts;
    std::uint32_t next = 10;
    for (std::uint32_t j = 0; j < parts; ++j) {
      const nn::SampleRange range = nn::micro_batch_range({10, samples}, parts, j);
      CHECK(range.begin == next);
      next += range.count;
      counts.push_back(range.count);
    }
    CHECK(next == 10 + samples);
    return counts;
  };
  CHECK(sizes(6, 4) == std::vector<std::uint32_t>{2, 2, 1, 1});
  CHECK(sizes(8, 3) == std::vector<std::uint32_t>{3, 3, 2});
  CHECK(sizes(8, 4) == std::vector<std::uint32_t>{2, 2, 2, 2});
  CHECK(sizes(3, 3) == std::vector<std::uint32_t>{1, 1, 1});
}

TEST_CASE("mini-batches: the last one is kept with the samples it has, or its samples dropped") {
  using Ranges = std::vector<nn::SampleRange>;
  CHECK((nn::epoch_batches(20, 8).mini_batches == Ranges{{0, 8}, {8, 8}, {16, 4}}));
  CHECK((nn::epoch_batches(17, 8).mini_batches == Ranges{{0, 8}, {8, 8}, {16, 1}}));
  CHECK(nn::epoch_batches(17, 8).dropped == 0);
  CHECK((nn::epoch_batches(17, 8, nn::LastBatch::Drop).mini_batches == Ranges{{0, 8}, {8, 8}}));
  CHECK(nn::epoch_batches(17, 8, nn::LastBatch::Drop).dropped == 1);
  CHECK(nn::epoch_batches(16, 8, nn::LastBatch::Drop).dropped == 0);
  CHECK((nn::epoch_batches(3, 8).mini_batches == Ranges{{0, 3}}));
  CHECK(nn::epoch_batches(3, 8, nn::LastBatch::Drop).mini_batches.empty());
}

TEST_CASE("segments: an epoch is one, and a last mini-batch of fewer samples than T its own") {
  using Plans = std::vector<nn::SegmentPlan>;
  const auto of = [](std::uint32_t samples, std::uint32_t epoch, std::uint32_t every) {
    return nn::segments_of_epoch(nn::epoch_batches(samples, 8), 4, every,
                                 {.epoch = epoch, .mini_batch = 0});
  };
  CHECK((of(62, 0, 0) == Plans{{0, 0, 8, 4}}));
  CHECK((of(9, 2, 0) == Plans{{2, 0, 1, 4}, {2, 1, 1, 1}}));
  CHECK((of(27, 0, 0) == Plans{{0, 0, 3, 4}, {0, 3, 1, 3}}));
  CHECK((of(3, 0, 0) == Plans{{0, 0, 1, 3}}));
}

TEST_CASE("segments: borders count over the whole run, and every epoch has one at its end") {
  using Plans = std::vector<nn::SegmentPlan>;
  const nn::EpochBatches eight = nn::epoch_batches(62, 8);
  const auto of = [&](std::uint32_t epoch, std::uint32_t first, std::uint32_t every) {
    return nn::segments_of_epoch(eight, 4, every, {.epoch = epoch, .mini_batch = first});
  };
  CHECK((of(0, 0, 3) == Plans{{0, 0, 3, 4}, {0, 3, 3, 4}, {0, 6, 2, 4}}));
  CHECK((of(1, 0, 3) == Plans{{1, 0, 1, 4}, {1, 1, 3, 4}, {1, 4, 3, 4}, {1, 7, 1, 4}}));
  CHECK((of(0, 0, 100) == Plans{{0, 0, 8, 4}}));
  CHECK((of(12, 0, 100) == Plans{{12, 0, 4, 4}, {12, 4, 4, 4}}));
  CHECK((of(0, 5, 3) == Plans{{0, 5, 1, 4}, {0, 6, 2, 4}}));  // from within a segment
  CHECK(of(0, 8, 3).empty());
  const auto ragged = nn::segments_of_epoch(nn::epoch_batches(27, 8), 4, 3, {});
  CHECK((ragged == Plans{{0, 0, 3, 4}, {0, 3, 1, 3}}));
}

}  // namespace
}  // namespace xpipe::tests
