// Images in files of their own, made by the test: decoding, class folders, augmentations, and a
// training that reads them while it runs.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <jpeglib.h>
#include <png.h>

#include "executor/torch/augment.h"
#include "executor/torch/dataset.h"
#include "executor/torch/image_codec.h"
#include "executor/torch/image_tree.h"
#include "tests/executor_torch/faults.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"
#include "tests/executor_torch/train_model.h"
#include "tests/scratch_folder.h"

namespace xpipe::tests {
namespace {

namespace fs = std::filesystem;

using Colour = std::array<std::uint8_t, 3>;

std::vector<std::uint8_t> filled(std::size_t pixels, const Colour& colour, std::size_t channels) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < pixels * channels; ++i) {
    bytes.push_back(colour[i % channels]);
  }
  return bytes;
}

/// Of one colour, in full quality; grey with one channel.
void write_jpeg(const fs::path& file, unsigned side, const Colour& colour, int channels = 3) {
  fs::create_directories(file.parent_path());
  std::FILE* out = std::fopen(file.c_str(), "wb");
  REQUIRE(out != nullptr);
  jpeg_compress_struct encoder{};
  jpeg_error_mgr faults{};
  encoder.err = jpeg_std_error(&faults);
  jpeg_create_compress(&encoder);
  jpeg_stdio_dest(&encoder, out);
  encoder.image_width = side;
  encoder.image_height = side;
  encoder.input_components = channels;
  encoder.in_color_space = channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_set_defaults(&encoder);
  jpeg_set_quality(&encoder, 100, TRUE);
  jpeg_start_compress(&encoder, TRUE);
  std::vector<std::uint8_t> row = filled(side, colour, static_cast<std::size_t>(channels));
  for (unsigned y = 0; y < side; ++y) {
    JSAMPROW line = row.data();
    jpeg_write_scanlines(&encoder, &line, 1);
  }
  jpeg_finish_compress(&encoder);
  jpeg_destroy_compress(&encoder);
  std::fclose(out);
}

void write_png(const fs::path& file,
               unsigned width,
               unsigned height,
               const std::vector<std::uint8_t>& rgb) {
  fs::create_directories(file.parent_path());
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = PNG_FORMAT_RGB;
  REQUIRE(png_image_write_to_file(&image, file.c_str(), 0, rgb.data(), 0, nullptr) != 0);
}

/// Two classes of 8 x 8 images that a colour tells apart, as Tiny ImageNet has them.
void write_tiny(const ScratchFolder& folder, int images_a_class) {
  std::string annotations;
  for (int i = 0; i < images_a_class; ++i) {
    const auto shade = static_cast<std::uint8_t>(20 * (i % 5));
    const std::string number = std::to_string(i) + ".JPEG";
    write_jpeg(folder.path("train/n01/images/n01_" + number), 8, {220, shade, 30});
    write_jpeg(folder.path("train/n02/images/n02_" + number), 8, {20, shade, 230});
    write_jpeg(folder.path("val/images/val_" + number), 8,
               i % 2 == 0 ? Colour{200, shade, 40} : Colour{40, shade, 200});
    annotations += "val_" + number + (i % 2 == 0 ? "\tn01" : "\tn02") + "\t0\t0\t7\t7\n";
  }
  folder.write("val/val_annotations.txt", annotations);
}

TEST_CASE("images: JPEG and PNG, in colour and grey, are the pixels that were written") {
  const ScratchFolder folder;
  write_jpeg(folder.path("red.JPEG"), 16, {200, 30, 60});
  const auto red = nn::read_image(folder.path("red.JPEG"));
  REQUIRE_MESSAGE(red.ok(), fault_of(red.status()));
  CHECK(red.value().height == 16);
  REQUIRE(red.value().pixels.size() == 3 * 16 * 16);
  for (const auto& [at, value] : {std::pair{0, 200}, {256, 30}, {2 * 256 + 255, 60}}) {
    CHECK(std::abs(red.value().pixels[static_cast<std::size_t>(at)] - value) <= 2);
  }
  write_jpeg(folder.path("grey.jpg"), 4, {90, 0, 0}, 1);
  const auto grey = nn::read_image(folder.path("grey.jpg"));
  REQUIRE_MESSAGE(grey.ok(), fault_of(grey.status()));
  CHECK(std::ranges::all_of(grey.value().pixels, [](int p) { return std::abs(p - 90) <= 1; }));
  write_png(folder.path("two.png"), 2, 1, {1, 2, 3, 40, 50, 60});
  const auto two = nn::read_image(folder.path("two.png"));
  REQUIRE_MESSAGE(two.ok(), fault_of(two.status()));
  CHECK(two.value().width == 2);
  CHECK(two.value().pixels == std::vector<std::uint8_t>{1, 40, 2, 50, 3, 60});
}

TEST_CASE("images: what is broken, cut short or something else is refused by its file's name") {
  const ScratchFolder folder;
  write_jpeg(folder.path("whole.jpg"), 32, {200, 30, 60});
  std::ifstream stream(folder.path("whole.jpg"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  for (const std::size_t size : {std::size_t{3}, bytes.size() / 2, bytes.size() - 20}) {
    folder.write("cut.jpg", bytes.substr(0, size));
    const auto cut = nn::read_image(folder.path("cut.jpg"));
    REQUIRE_FALSE(cut.ok());
    CHECK(has(cut.error().to_string(), "cut.jpg"));
    CHECK(cut.error().kind == ir::ErrorKind::BadInput);
  }
  write_png(folder.path("a.png"), 2, 2, std::vector<std::uint8_t>(12, 9));
  std::ifstream png(folder.path("a.png"), std::ios::binary);
  std::string damaged{std::istreambuf_iterator<char>(png), {}};
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] + 1);
  folder.write("b.png", damaged);
  CHECK(has(fault_of(nn::read_image(folder.path("b.png")).status()), "b.png"));
  folder.write("c.png", "GIF89a");
  CHECK(has(fault_of(nn::read_image(folder.path("c.png")).status()), "neither a JPEG nor a PNG"));
  CHECK_FALSE(nn::read_image(folder.path("none.png")).ok());
}

TEST_CASE("images: the middle square is scaled, and what is as large stays as it is") {
  nn::RgbImage image{.height = 2, .width = 4, .pixels = {}};
  for (int c = 0; c < 3; ++c) {
    for (const int pixel : {0, 10, 20, 255, 0, 30, 40, 255}) {
      image.pixels.push_back(static_cast<std::uint8_t>(pixel));
    }
  }
  const nn::RgbImage same = nn::resized_to_square(image, 2);
  CHECK(std::vector<std::uint8_t>(same.pixels.begin(), same.pixels.begin() + 4) ==
        std::vector<std::uint8_t>{10, 20, 30, 40});
  const nn::RgbImage flat = nn::resized_to_square(
      {.height = 9, .width = 7, .pixels = std::vector<std::uint8_t>(3 * 63, 77)}, 4);
  CHECK(flat.pixels == std::vector<std::uint8_t>(3 * 16, 77));
}

TEST_CASE("class folders: Tiny ImageNet's layout, and plain ones with and without a test set") {
  const ScratchFolder tiny;
  write_tiny(tiny, 3);
  REQUIRE(nn::is_image_tree(tiny.path()));
  const auto tree = nn::read_image_tree(tiny.path());
  REQUIRE_MESSAGE(tree.ok(), fault_of(tree.status()));
  CHECK(tree.value().kind == "tiny-imagenet");
  CHECK(tree.value().classes == std::vector<std::string>{"n01", "n02"});
  REQUIRE(tree.value().train.size() == 6);
  CHECK(has(tree.value().train[4].path, "n02_1.JPEG"));
  CHECK(tree.value().train[4].label == 1);
  REQUIRE(tree.value().test.size() == 3);
  CHECK(tree.value().test[1].label == 1);
  CHECK(tree.value().test[2].label == 0);

  const ScratchFolder plain;
  for (int i = 0; i < 12; ++i) {
    const std::string name = std::string(1, static_cast<char>('a' + i)) + ".png";
    write_png(plain.path("cats/" + name), 1, 1, {1, 2, 3});
    write_png(plain.path("dogs/" + name), 1, 1, {4, 5, 6});
  }
  const auto held_out = nn::read_image_tree(plain.path());
  REQUIRE_MESSAGE(held_out.ok(), fault_of(held_out.status()));
  CHECK(held_out.value().kind == "image-folder");
  REQUIRE(held_out.value().test.size() == 4);  // a and k of each
  CHECK(has(held_out.value().test[1].path, "cats/k.png"));
  CHECK(held_out.value().train.size() == 20);

  const ScratchFolder split;
  write_png(split.path("train/x/1.png"), 1, 1, {1, 2, 3});
  write_png(split.path("test/x/2.png"), 1, 1, {1, 2, 3});
  const auto with_test = nn::read_image_tree(split.path());
  REQUIRE_MESSAGE(with_test.ok(), fault_of(with_test.status()));
  CHECK(with_test.value().test.size() == 1);
}

TEST_CASE("class folders: every fault of a tree is told at once, with its place") {
  const ScratchFolder folder;
  write_tiny(folder, 2);
  fs::create_directories(folder.path("train/n03/images"));
  folder.write("val/val_annotations.txt",
               "val_0.JPEG\tn01\t0\nval_1.JPEG n02\nval_1.JPEG\tn09\nval_7.JPEG\tn02\n");
  const std::string fault = fault_of(nn::read_image_tree(folder.path()).status());
  CHECK(has(fault, "train/n03/images"));
  CHECK(has(fault, "val_annotations.txt, line 2"));
  CHECK(has(fault, "'n09' is no class"));
  CHECK(has(fault, "val_7.JPEG, which is not there"));
  const ScratchFolder untested;
  write_png(untested.path("train/x/1.png"), 1, 1, {1, 2, 3});
  CHECK(has(fault_of(nn::read_image_tree(untested.path()).status()), "neither val nor test"));
}

TEST_CASE("augmentations: a function of seed, epoch and sample; all places and both sides occur") {
  const nn::Augmentations both{.crop = true, .flip = true};
  std::map<int, int> rows;
  std::map<int, int> columns;
  int mirrored = 0;
  constexpr int kSamples = 9000;
  for (std::uint32_t sample = 0; sample < kSamples; ++sample) {
    const nn::Placement place = nn::placement_of(both, 1, 2, sample);
    CHECK(place == nn::placement_of(both, 1, 2, sample));
    ++rows[place.row];
    ++columns[place.column];
    mirrored += place.mirrored ? 1 : 0;
  }
  CHECK(rows.size() == 9);
  CHECK(rows.begin()->first == -4);
  for (const auto& [place, times] : rows) {
    CHECK(std::abs(times - 1000) < 150);  // five deviations of a binomial of 9000 and 1/9
    CHECK(std::abs(columns[place] - 1000) < 150);
  }
  CHECK(std::abs(mirrored - 4500) < 240);
  CHECK_FALSE(nn::placement_of(both, 1, 2, 3) == nn::placement_of(both, 1, 3, 3));
  CHECK(nn::placement_of({}, 1, 2, 3) == nn::Placement{});
}

TEST_CASE("augmentations: the pixels of a placed image, black where there are none") {
  const nn::PixelLayout layout{.channels = 1, .height = 2, .width = 3, .mean = {0.5F, 0, 0}};
  const std::vector<std::uint8_t> pixels{51, 102, 153, 204, 255, 0};
  const auto placed = [&](const nn::Placement& placement) {
    std::vector<float> out(6);
    nn::write_placed(pixels, layout, placement, out);
    std::vector<int> tenths;
    for (const float value : out) {
      tenths.push_back(static_cast<int>(std::lround((value + 0.5F) * 10)));
    }
    return tenths;
  };
  CHECK(placed({}) == std::vector<int>{2, 4, 6, 8, 10, 0});
  CHECK(placed({.mirrored = true}) == std::vector<int>{6, 4, 2, 0, 10, 8});
  CHECK(placed({.row = 1}) == std::vector<int>{8, 10, 0, 0, 0, 0});
  CHECK(placed({.row = -1, .column = 1}) == std::vector<int>{0, 0, 0, 4, 6, 0});
  CHECK(placed({.column = 1, .mirrored = true}) == std::vector<int>{0, 6, 4, 0, 0, 10});
}

/// Convolution and linear, two layers.
nn::Model image_model() {
  using namespace torch::nn;  // NOLINT(google-build-using-namespace): two layers' worth of names
  nn::Model model{.name = "images"};
  model.layers.push_back(
      {.name = "a", .module = Sequential(Conv2d(Conv2dOptions(3, 4, 3)), ReLU(), MaxPool2d(2))});
  model.layers.push_back({.name = "b", .module = Sequential(Flatten(), Linear(36, 2))});
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& parameter : nn::parameters_of(model.layers)) {
    torch::Tensor(parameter).copy_(
        torch::linspace(-0.3, 0.3, parameter.numel()).reshape(parameter.sizes()));
  }
  return model;
}

TEST_CASE(
    "training from files: learns, reads ahead without a change, and augments the same in "
    "every cut") {
  const ScratchFolder folder;
  write_tiny(folder, 8);
  nn::DataOptions options;
  options.augmentations = {.crop = true, .flip = true};
  const auto data = nn::open_dataset(folder.path(), options, 0, 5);
  REQUIRE_MESSAGE(data.ok(), fault_of(data.status()));
  CHECK(data.value().classes == 2);
  CHECK(data.value().train->count() == 16);
  CHECK_FALSE(data.value().train->is_in_memory());
  ModelTraining training{.partition = {2}, .mini_batches = {16}, .epochs = 8};
  training.optimizer.learning_rate = 0.02;
  const TrainedModel one = train_model(image_model(), *data.value().train, training);
  CHECK(one.losses.back() < one.losses.front());
  training.partition = {1, 1};
  CHECK(same_bits(train_model(image_model(), *data.value().train, training).weights, one.weights));
  // The same samples laid out in memory, an epoch at a time, are the same training.
  nn::Samples memory;
  const std::vector<std::uint32_t> all{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  memory.inputs = data.value().train->input_batch(0, all).value();
  memory.labels = data.value().train->label_batch(all);
  CHECK_FALSE(torch::equal(memory.inputs, data.value().train->input_batch(1, all).value()));
  training.epochs = 1;
  CHECK(same_bits(train_model(image_model(), memory, training).weights,
                  train_model(image_model(), *data.value().train, training).weights));
}

TEST_CASE("training from files: an image that breaks in between ends it, named") {
  const ScratchFolder folder;
  write_tiny(folder, 8);
  const auto data = nn::open_dataset(folder.path(), {}, 0, 5);
  REQUIRE_MESSAGE(data.ok(), fault_of(data.status()));
  folder.write("train/n02/images/n02_3.JPEG", "\xff\xd8\xff\xe0 no more");
  ModelTraining training{.partition = {1, 1}, .mini_batches = {8, 8}};
  const ir::Status status = try_training(image_model(), *data.value().train, training);
  REQUIRE_FALSE(status.ok());
  CHECK(has(fault_of(status), "n02_3.JPEG"));
  CHECK(status.error().kind == ir::ErrorKind::BadInput);
  write_jpeg(folder.path("train/n02/images/n02_3.JPEG"), 9, {1, 2, 3});
  CHECK(has(fault_of(try_training(image_model(), *data.value().train, training)), "--image-size"));
  nn::DataOptions sized;
  sized.image_size = 8;
  const auto resized = nn::open_dataset(folder.path(), sized, 0, 5);
  REQUIRE(resized.ok());
  CHECK(try_training(image_model(), *resized.value().train, training).ok());
}

TEST_CASE("pixels: normalized by their channel, as the formula says") {
  nn::ImageSet images{.count = 2, .channels = 3, .height = 32, .width = 32};
  for (std::size_t i = 0; i < 2 * 3072; ++i) {
    images.pixels.push_back(static_cast<std::uint8_t>(i * 7));
  }
  images.labels = {3, 9};
  const nn::Samples plain = nn::normalized(images, "cifar10");
  const torch::Tensor expected =
      torch::tensor(std::vector<std::int64_t>(images.pixels.begin(), images.pixels.end()))
          .reshape({2, 3, 32, 32})
          .to(torch::kFloat32)
          .div_(255.0)
          .sub_(torch::tensor({0.4914F, 0.4822F, 0.4465F}).view({1, 3, 1, 1}))
          .div_(torch::tensor({0.2470F, 0.2435F, 0.2616F}).view({1, 3, 1, 1}));
  CHECK(torch::allclose(plain.inputs, expected, 1e-6, 1e-6));
  CHECK(plain.labels[1].item<std::int64_t>() == 9);
}

}  // namespace
}  // namespace xpipe::tests
